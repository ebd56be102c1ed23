"""The commands of `analyze`: one module each, with a function of its name, found by listing."""

from importlib import import_module
from pkgutil import iter_modules

from logitbank.cli.options import new_app

app = new_app("Compute a family of metrics from a bank.")
for module in iter_modules(__path__):
    command = getattr(import_module(f"{__name__}.{module.name}"), module.name)
    app.command(module.name.replace("_", "-"))(command)
