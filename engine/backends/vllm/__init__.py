"""The vLLM engine."""

from importlib import import_module

from logitbank.engine.backends.engine import Engine

ENGINE = Engine(
    name="vllm",
    order=1,
    packages=("torch", "transformers", "vllm"),
    install='pip install "logitbank[vllm]" on a CUDA machine',
    fallback="transformers",
    open=lambda task: (
        import_module(".masked", __name__).VllmMaskedBackend
        if task == "masked"
        else import_module(".engine", __name__).VllmBackend
    ),
    environment=lambda start: import_module(".environment", __name__).environment(start),
    check_memory=lambda *model: import_module(".memory", __name__).check_memory(*model),
    positions=lambda *run: import_module(".memory", __name__).run_tokens(*run),
    start_problem=lambda *start: import_module(".refusals", __name__).start_problem(*start),
    machine_problem=lambda machine: import_module(".refusals", __name__).machine_problem(machine),
    model_problem=lambda *model: import_module(".refusals", __name__).model_problem(*model),
)
