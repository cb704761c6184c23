"""`share.bytes`: how large the shared pages are."""

import tempfile
from pathlib import Path

from lab import paths, records
from lab.bench import bench


@bench("share")
def share_bytes() -> None:
    """Every notebook as a shared page of the bundled model; a row each, and the largest without a suffix."""
    from lab import share  # here: the list of benchmarks must load where marimo is not installed

    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for notebook in sorted(paths.NOTEBOOKS.rglob("*.py")):
            name = f"{notebook.parent.name}-{notebook.stem}"
            sizes[name] = share.export(notebook, Path(folder) / f"{name}.html", "pocket").stat().st_size
    for name, size in sizes.items():
        records.write(f"share.bytes.{name}", size, "B", bar=12e6)
    worst = max(sizes, key=sizes.__getitem__)
    records.write("share.bytes", sizes[worst], "B", bar=12e6, note=f"the largest page: {worst}")
