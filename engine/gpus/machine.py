"""What of a machine decides whether an engine starts on its GPUs; nothing heavy is imported."""

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.gpus.cards import Card, visible_cards
from logitbank.store.files.disk import existing


class Cache(NamedTuple):
    """A folder that an engine writes to while it runs, and the variable that moves it."""

    variable: str
    path: Path
    free: int
    """Bytes of its disk."""


class Machine(NamedTuple):
    """As `refused` looks at it."""

    cards: tuple[Card, ...]
    cuda: str
    """Version of CUDA that PyTorch is built for; "" where it is built for none."""
    works: Callable[[], str]
    """What PyTorch says when it is asked to start CUDA, in a process of its own; "" if it does."""
    compiler: str | None
    """Path of the one that Triton would take."""
    header: Path
    """Python.h, there or not."""
    caches: tuple[Cache, ...]

    @classmethod
    def here(cls, environment: Mapping[str, str], *, vllm: bool) -> "Machine":
        """This machine, as an engine in this environment finds it."""
        path = environment.get("PATH")
        named = environment.get("CC")
        found = [shutil.which(name, path=path) for name in ("gcc", "clang")]
        return cls(
            visible_cards(environment),
            built_for(_version_file()),
            _started_cuda,
            shutil.which(named, path=path) if named else next(filter(None, found), None),
            Path(sysconfig.get_paths(scheme=_scheme())["include"]) / "Python.h",
            tuple(_caches(environment, vllm=vllm)),
        )


def built_for(version_file: str) -> str:
    """The version of CUDA in the text of `torch/version.py`.

    Examples
    --------
    >>> built_for("__version__ = '2.13.0+cu130'\\ncuda: Optional[str] = '13.0'")
    '13.0'
    >>> built_for("cuda: Optional[str] = None")
    ''
    """
    found = re.search(r"^cuda\b[^=]*= *'([\d.]+)'", version_file, re.M)
    return found[1] if found else ""


def _version_file() -> str:
    spec = importlib.util.find_spec("torch")  # imports nothing
    folders = spec.submodule_search_locations if spec else None
    paths = [Path(folder) / "version.py" for folder in folders or ()]
    return next((path.read_text() for path in paths if path.exists()), "")


def _started_cuda() -> str:
    command = [sys.executable, "-c", "import torch; torch.cuda.init()"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ended.stderr.strip().splitlines()
    return "" if ended.returncode == 0 else (lines or ["no reason is given"])[-1]


def _scheme() -> str:
    # Debian's own scheme has an include folder in which its Python.h is not.
    default = sysconfig.get_default_scheme()
    return "posix_prefix" if default == "posix_local" else default


def _caches(environment: Mapping[str, str], *, vllm: bool) -> list[Cache]:
    home = Path(environment.get("HOME", "~")).expanduser()
    cache = Path(environment.get("XDG_CACHE_HOME", home / ".cache"))
    folders = {"HF_HOME": cache / "huggingface"}
    if vllm:
        triton = Path(environment.get("TRITON_HOME", home)) / ".triton" / "cache"
        folders |= {"TRITON_CACHE_DIR": triton, "VLLM_CACHE_ROOT": cache / "vllm"}
    named = {name: Path(environment.get(name) or folder) for name, folder in folders.items()}
    return [
        Cache(name, path, shutil.disk_usage(existing(path)).free) for name, path in named.items()
    ]
