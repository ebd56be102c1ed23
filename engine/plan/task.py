"""What prompts and a model's config decide about the engine: pure, before anything is loaded."""

from collections.abc import Sequence
from dataclasses import replace

from logitbank.engine.backends.protocol import EngineSettings, Task
from logitbank.engine.prompts.tokenize import TokenizedPrompts
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.masked_family import masked_families
from logitbank.errors import PromptError, UsageError


def fitted_settings(
    settings: EngineSettings,
    prompts: Sequence[TokenizedPrompts],
    config: ModelConfig,
    *,
    engine_auto: bool,
) -> tuple[EngineSettings, tuple[str, ...]]:
    """The settings asked for with task, engine and borrowed adapters; and notes about them.

    `engine_auto` allows another engine where theirs has no class for the model.

    Raises
    ------
    PromptError
        Prompts of two kinds, of the wrong kind for the model, or without a language adapter that
        the model has.
    UsageError
        An engine that has no class for the model.
    """
    task = _task(prompts, config)
    borrowed = _borrowed(prompts, config, settings)
    engine, notes = settings.engine, []
    if settings.adapter_from is not None and not borrowed:
        notes.append(f"no adapter is taken from {settings.adapter_from}: none is lacking")
    if engine == "vllm" and (why := _not_on_vllm(task, prompts, config)):
        if not engine_auto:
            raise UsageError(f"{why}; use --engine transformers")
        engine = "transformers"
        notes.append(f"{why}: transformers is used")
    fitted = replace(
        settings,
        task=task,
        engine=engine,
        next_sentence=any(p.queries[0].head == "next_sentence" for p in prompts),
        adapter_languages=borrowed,
    )
    return fitted, tuple(notes)


def _not_on_vllm(task: Task, prompts: Sequence[TokenizedPrompts], config: ModelConfig) -> str:
    """Why vLLM would not run these prompts, or not rightly; empty where nothing is against it."""
    if task == "masked" and config.model_type not in masked_families():
        return (
            f"masked models of type {config.model_type!r} do not run on vLLM here "
            f"({', '.join(masked_families())} do)"
        )
    if config.not_on_vllm:
        return f"vLLM does not support {config.not_on_vllm[0]} of {config.model_type!r} models"
    if config.rope_switch is not None:
        queries = [query for each in prompts for query in each.queries]
        shortest = min(query.position + 1 for query in queries)
        longest = max(len(query.ids) for query in queries)
        # vLLM takes the factors of its longest sequence, and the token that it generates, for all.
        if shortest <= config.rope_switch <= longest:
            return (
                f"contexts have {shortest} to {longest} tokens, and vLLM uses one set of RoPE"
                f" factors for lengths up to {config.rope_switch} and above"
            )
    return ""


def _task(prompts: Sequence[TokenizedPrompts], config: ModelConfig) -> Task:
    tasks: dict[Task, str] = {}
    for each in prompts:
        masked = [query.head != "next_token" for query in each.queries]
        for task in sorted({_named(m) for m in masked}):
            query = masked.index(task == "masked")
            first = each.table.filter(query=query)["prompt_id"][0]
            tasks.setdefault(task, f"prompt {first!r} of {each.name!r}")
    if len(tasks) > 1:
        raise PromptError(
            f"{tasks['masked']} has a [MASK] and {tasks['causal']} has none: they need different "
            "kinds of model; extract them separately"
        )
    ((task, where),) = tasks.items()
    if config.task is not None and config.task != task:
        raise PromptError(
            f"{where} is for a {task} model, and this is a {config.task} one "
            f"({', '.join(config.architectures)}); choose other prompts or another suite"
        )
    return task


def _named(masked: bool) -> Task:
    return "masked" if masked else "causal"


def _borrowed(
    prompts: Sequence[TokenizedPrompts], config: ModelConfig, settings: EngineSettings
) -> tuple[str, ...]:
    """Languages whose adapters come from another checkpoint."""
    languages = sorted({query.language for each in prompts for query in each.queries})
    if not config.languages:
        if languages != [""]:
            raise PromptError(
                f"the model has no language adapters, so none for {languages[-1]!r}; leave out "
                "--language"
            )
        return ()
    available = ", ".join(config.languages)
    if "" in languages:
        raise PromptError(f"the model has a language adapter each for {available}; name --language")
    missing = tuple(language for language in languages if language not in config.languages)
    if not missing or settings.adapter_from is None:
        if missing:
            raise PromptError(
                f"the model has no adapter for {missing[0]!r} (it has {available}); take it from "
                "another checkpoint with --adapter-from"
            )
        return ()
    others = ModelConfig.read(settings.adapter_from).languages
    if absent := [language for language in missing if language not in others]:
        raise PromptError(
            f"neither the model nor {settings.adapter_from} has an adapter for {absent[0]!r}; they "
            f"have {available}, and {', '.join(others) or 'none'}"
        )
    return missing
