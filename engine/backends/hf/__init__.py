"""The transformers engine."""

from importlib import import_module

from logitbank.engine.backends.engine import Engine

ENGINE = Engine(
    name="transformers",
    order=2,
    packages=("torch", "transformers"),
    install='pip install "logitbank[engine]"',
    open=lambda _: import_module(".backend", __name__).TransformersBackend,
    environment=lambda start: import_module(".environment", __name__).environment(start),
    check_memory=lambda *model: import_module(".memory", __name__).check_memory(*model),
    positions=lambda *run: import_module(".packs", __name__).run_positions(*run),
)
