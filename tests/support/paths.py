"""Where tests find things: the repository, and the public data where they are."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
PUBLIC = Path(os.environ.get("LOGITBANK_DATA", ROOT.parent / "shared" / "data"))
"""Public data, described in their README; tests that need them skip where they are absent."""
