"""Where things live. Every location can be moved by an environment variable."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
MODELS = DATA / "models"
RECORDS = DATA / "records"
NOTEBOOKS = Path(os.environ.get("LAB_NOTEBOOKS", ROOT / "notebooks"))


def cache() -> Path:
    """Downloaded and converted things; `LAB_CACHE`, else the user's cache folder."""
    if named := os.environ.get("LAB_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "looplab"


def runs() -> Path:
    """Run directories; `LAB_RUNS`, else `runs/` beside the code."""
    return Path(os.environ.get("LAB_RUNS", ROOT / "runs"))


def there(path: Path) -> bool:
    """Whether something is at this path; False, not an error, for a link to itself or a name no disk takes."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
