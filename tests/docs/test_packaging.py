"""The wheel has every package, the front door every name, and light imports stay light."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import logitbank
from logitbank import analysis, engine, store
from logitbank.analysis.families import BUILT_IN
from scripts import install, source
from tests.support.docs_setups import demo
from tests.support.paths import ROOT

HEAVY = ("torch", "transformers", "vllm")


TOP = source.TOP


def test_packages_of_the_wheel_are_the_folders_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {}
    builder = SimpleNamespace(setup=arguments.update)
    monkeypatch.setitem(sys.modules, "setuptools", builder)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    packages = {name for name, path in source.modules().items() if path.name == "__init__.py"}
    assert sorted(arguments["packages"]) == sorted(packages)
    assert set(arguments["package_dir"].values()) == set(TOP)
    assert {p.parent.name for p in ROOT.glob("*/py.typed")} == set(TOP)
    folders = {path.parent for path in source.modules().values()}
    assert {
        path.parent for path in source.modules().values() if path.name == "__init__.py"
    } == folders


@pytest.mark.whole
def test_a_wheel_analyses_the_recorded_bank_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo()
    for name in (*TOP, "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        Path("source").mkdir(exist_ok=True)
        copy(ROOT / name, Path("source") / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", ".", "./source"]
    subprocess.run(build, check=True)
    (wheel,) = Path().glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", "site", wheel], check=True)
    assert Path("site/logitbank/py.typed").is_file()
    # Refused by a finder: libraries take a None in sys.modules for a module that is imported.
    code = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class Absent(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name.partition('.')[0] in {HEAVY}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent()); import logitbank\n"
        "print(logitbank.__file__, logitbank.fairness('demo/toy.zarr', bootstrap=0).findings[0])"
    )
    environment = os.environ | {"PYTHONPATH": str(Path("site").absolute())}
    run = [sys.executable, "-c", code]
    result = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert result.stdout.startswith(str(Path("site").absolute())), result.stderr
    assert "440" in result.stdout


def test_the_source_archive_has_the_studies_and_the_wheel_does_not(tmp_path: Path) -> None:
    source_tree = tmp_path / "source"
    source_tree.mkdir()
    for name in (
        *TOP,
        "studies",
        "pyproject.toml",
        "setup.py",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
    ):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source_tree / name)
    code = "from setuptools import build_meta as b; b.build_sdist('out')"
    subprocess.run([sys.executable, "-c", code], cwd=source_tree, check=True, capture_output=True)
    (archive,) = (source_tree / "out").iterdir()
    with tarfile.open(archive) as files:
        names = {Path(name).name for name in files.getnames() if "/studies/" in name}
    assert names == {path.name for path in (ROOT / "studies").iterdir()}
    assert "studies" not in TOP


def test_imported_modules_exist() -> None:
    assert not {
        name: gone
        for name, used in source.imports().items()
        if (gone := used - set(source.modules()))
    }


DOORS = pytest.mark.parametrize(
    ("folder", "package"),
    [("api", logitbank), ("store", store), ("analysis", analysis), ("engine", engine)],
)


@DOORS
def test_a_front_door_gives_every_name_that_it_lists(folder: str, package: Any) -> None:
    doors = [ROOT / folder / "__init__.py", *(ROOT / folder).glob("families/*/__init__.py")]
    text = "".join(door.read_text() for door in doors)
    assert len(package.__all__) >= 6
    for name in package.__all__:
        assert f" {name} as {name}" in text or name in ("open", *BUILT_IN)
        assert getattr(package, name).__name__ == name
    assert sorted(package.__all__) == dir(package)
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing


def test_few_names_are_at_the_top_and_the_packages_below_it_are_found() -> None:
    code = "import logitbank; print(logitbank.engine.Option, logitbank.store.CheckpointId)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Option" in result.stdout, result.stderr
    assert len({*logitbank.__all__} - {*BUILT_IN}) <= 20


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert logitbank.__version__ == project["version"]


LIGHT = [
    {"logitbank.cli.main": (*HEAVY, "polars", "zarr", "scipy", "rich.table")},
    {
        "logitbank": (*HEAVY, "polars", "zarr", "scipy"),
        "logitbank.analysis": (*HEAVY, "altair", "vl_convert"),
        "logitbank.analysis.families.fairness.metric": (
            "altair", *(f"logitbank.analysis.families.{name}" for name in BUILT_IN
                        if name != "fairness"),
        ),
        "logitbank.store": HEAVY,
        "logitbank.analysis.study": HEAVY,
    },
]  # fmt: skip
"""Modules of a process, imported one after the other, and what none of them may have imported."""


@pytest.mark.parametrize("modules", LIGHT)
def test_modules_are_imported_without_heavy_packages_and_other_families(
    modules: dict[str, tuple[str, ...]],
) -> None:
    code = (
        "import sys; from importlib import import_module\n"
        f"for name, heavy in {modules}.items():\n"
        "    import_module(name)\n"
        "    print(name, [each for each in heavy if each in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines() == [f"{name} []" for name in modules], result.stderr


def test_imports_of_top_folders_go_one_way() -> None:
    below = {
        "analysis": ("analysis", "store"),
        "cli": ("analysis", "cli", "engine", "store"),
        "engine": ("engine", "store"),
        "store": ("store",),
    }
    wrong = [
        f"{name} imports {used}"
        for name in source.modules()
        for used in source.imports()[name]
        if (top := name.split(".")[1:2]) and top[0] in below
        if (other := used.split(".")[1:2]) and other[0] in below and other[0] not in below[top[0]]
    ]
    assert not wrong, wrong
    assert sum(map(len, source.imports().values())) > 500


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Lazy imports and those for types count."""
    assert source.cycle() == []


def test_a_circle_of_imports_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    monkeypatch.setattr(source, "imports", lambda: ring)
    assert set(source.cycle()) == set(ring)


def test_only_lists_of_plug_ins_name_imports_by_variables() -> None:
    """A circle by way of any other would be unseen. The doors name what their texts import."""
    assert source.unnamed_imports() == {
        ("logitbank.analysis.families", "built_in"),
        ("logitbank.engine.backends.engine", "engines"),
        ("logitbank.engine.prompts.registry", "known_sets"),
        ("logitbank.front_door", "front_door"),
        ("logitbank.front_door", "find"),
    }


def test_a_module_imported_by_its_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = {"logitbank.a.b": "import_module('.c', __name__)", "logitbank.a.c": ""}
    ring["logitbank.a.c"] = "importlib.import_module('logitbank.a.b')"
    paths = {}
    for name, text in ring.items():
        paths[name] = tmp_path / f"{name[-1]}.py"
        paths[name].write_text(text)
    monkeypatch.setattr(source, "modules", lambda: paths)
    monkeypatch.setattr(source, "imports", source.imports.__wrapped__)
    assert source.imports()["logitbank.a.b"] == {"logitbank.a.c"}
    assert set(source.cycle()) == set(ring)


def test_the_map_of_folders_is_that_of_the_source() -> None:
    assert source.ROOMS.read_text() == source.rooms_table(), "Run `python -m scripts.source`."


def test_folders_and_modules_named_on_pages_exist() -> None:
    named = [
        (page.name, path)
        for page in (ROOT / "docs").rglob("*.md")
        if not page.name.startswith("_")  # written by the site's build
        for path in re.findall(rf"`((?:{'|'.join(TOP)})/[\w/]*(?:\.py|/))`", page.read_text())
    ]
    assert len(named) > 30
    assert [(page, path) for page, path in named if not (ROOT / path).exists()] == []


def test_uv_gets_the_settings_of_pip_or_none() -> None:
    settings = [
        ":env:.find-links='/a /b'",
        "global.extra-index-url='file:///x https://y/simple'",
        "global.find-links='/c'",
        "install.progress-bar='off'",
        "install.constraint='pins.txt'",
        "list.format='columns'",
    ]
    assert install.uv_variables("\n".join(settings)) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INDEX": "file:///x https://y/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_CONSTRAINT": "pins.txt",
    }
    assert install.uv_variables("global.proxy='http://x'") is None


@pytest.mark.parametrize("variables", [None, {"UV_FIND_LINKS": "/c"}])
def test_the_cpu_build_of_torch_comes_from_pytorch_s_index_if_no_other_has_it(
    variables: dict[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(command: list[str], _: object = None) -> SimpleNamespace:
        commands.append(" ".join(command))
        return SimpleNamespace(returncode=len(commands) < successful, stdout="no network")

    monkeypatch.setattr(install, "_run", run)
    monkeypatch.setattr(install, "uv", lambda: variables)
    by_index = "--torch-backend cpu" if variables else f"--extra-index-url {install.CPU_INDEX}"
    for successful in (1, 2):
        commands: list[str] = []
        install.torch_cpu()
        assert all(f"torch=={install.TORCH}+cpu" in command for command in commands)
        assert [by_index in command for command in commands] == [False, True][:successful]
    commands, successful = [], 9
    with pytest.raises(SystemExit, match=f"nor at {install.CPU_INDEX}.*LOGITBANK_GPU=1"):
        install.torch_cpu()
    assert "no network" in capsys.readouterr().out


def test_a_variable_decides_about_the_gpu_on_a_login_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in (None, "/usr/bin/nvidia-smi"):
        monkeypatch.setattr(shutil, "which", lambda _, driver=driver: driver)
        assert install.wants_gpu({}) == bool(driver)
        assert install.wants_gpu({"LOGITBANK_GPU": "1"})
        assert not install.wants_gpu({"LOGITBANK_GPU": "0"})
    with pytest.raises(SystemExit, match="LOGITBANK_GPU='yes' is invalid"):
        install.wants_gpu({"LOGITBANK_GPU": "yes"})
