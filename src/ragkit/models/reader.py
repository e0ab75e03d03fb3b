"""The reader: prompts in, completions out, in this process or through an OpenAI-compatible server.

Greedy unless the profile says otherwise; every completion says why it ended, its tokens and its seconds.
It never assembles a prompt's content, and never hides an empty or truncated answer.
"""

from __future__ import annotations

import functools
import gc
import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from ragkit.errors import InputError, ServiceError
from ragkit.models.client import ServerClient
from ragkit.models.quiet import quiet_loading
from ragkit.models.text import is_unicode
from ragkit.models.weights import ModelEntry, ensure, find_model, model_entry
from ragkit.profile import Profile, ReaderChoice, load_profile
from ragkit.records import Completion

Prompt = str | list[dict[str, str]]
"""One user message as a string, or a chat as a list of {"role": ..., "content": ...}."""

_LONG_WORK = 8
_THOUGHT = re.compile(r"\s*<think>.*?(</think>\s*|\Z)", re.DOTALL)


class _Engine(Protocol):
    """What answers chats, in order, as they end."""

    def completions(self, chats: Sequence[list[dict[str, str]]]) -> Iterator[Completion]: ...

    def count_tokens(self, text: str) -> int: ...

    def close(self) -> None: ...


class Reader:
    """Answers of a generator. Made by `open_reader`; a context manager that frees the model at its end.

    Attributes
    ----------
    identity : dict
        All that an answer depends on besides the prompt and its batch, as plain JSON values; a key for journals.
    batch_size : int
        How many consecutive prompts are answered together; 1 where each is answered by itself.
    """

    def __init__(self, name: str, identity: dict[str, Any], engine: _Engine) -> None:
        self.identity = identity
        self.batch_size = int(identity.get("batch_size", 1))
        self._name = name
        self._engine: _Engine | None = engine

    def answer(self, prompts: Sequence[Prompt], progress: bool | None = None) -> list[Completion]:
        """One completion for each prompt, in the order given.

        Parameters
        ----------
        prompts
            Strings (one user message each) or chats; the model's own chat template renders them.
        progress
            Show a bar; by default where there are more than 8 prompts.

        Returns
        -------
        Completions: `text`, `finish_reason` ("stop" or "length"; a server may add its own), tokens in and out as the model counts
        them, and the wall seconds it took (its share of its batch in this process; with a server's concurrency, seconds overlap).

        Raises
        ------
        InputError
            A prompt is malformed, or too long for the model with `max_new_tokens` to follow.
        ServiceError
            The server failed, or the reader was closed.
        """
        show = len(prompts) > _LONG_WORK if progress is None else progress
        completions = self.iter_answers(prompts)
        return list(tqdm(completions, total=len(prompts), unit="answer", desc="reading", disable=not show, leave=False))

    def iter_answers(self, prompts: Sequence[Prompt]) -> Iterator[Completion]:
        """As `answer`, but yields each completion in order as soon as it is there (what a journal needs)."""
        if isinstance(prompts, str):
            raise InputError("prompts is one string: give a list of prompts")
        chats = [_as_chat(prompt, place) for place, prompt in enumerate(prompts)]
        return self._running().completions(chats)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text by the reader's own tokenizer, special tokens not included.

        Raises
        ------
        ServiceError
            The model's tokenizer is neither here nor at the server.
        """
        return self._running().count_tokens(text) if text else 0

    def close(self) -> None:
        """Free the model, or the server's connections; answering afterwards raises ServiceError."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            gc.collect()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> _Engine:
        if self._engine is None:
            raise ServiceError(f"reader {self._name} is closed: open it again with open_reader")
        return self._engine


def open_reader(profile: str | Path | Profile, *, progress: bool = True) -> Reader:
    """The reader of a profile, ready to answer; weights are fetched (size said first) if they are not there yet.

    A model that the registry does not know is accepted where a server holds it (backend openai), under the name given.

    Parameters
    ----------
    profile
        A profile's name, the path of its file, or the profile itself.
    progress
        Show the fetch.

    Raises
    ------
    InputError
        Unknown profile or model, or a backend the model does not run on.
    ServiceError
        Weights cannot be fetched, differ from their pin or cannot be read.
    """
    choice = load_profile(profile).reader
    served = choice.backend == "openai"
    entry = find_model(choice.model) if served else model_entry(choice.model)
    if entry is not None and entry.kind != "reader":
        raise InputError(f"{entry.name} is an {entry.kind}, not a reader: name a reader in the profile")
    if entry is not None and choice.backend not in entry.backends:
        raise InputError(f"{entry.name} does not run on backend {choice.backend}: choose from {', '.join(entry.backends)}")
    name = entry.name if entry else choice.model
    identity = {
        "model": name,
        "weights": entry.sha256 if entry else None,
        "backend": choice.backend,
        "max_new_tokens": choice.max_new_tokens,
        "temperature": choice.temperature,
        "extra_body": choice.extra_body,
    }
    if served:
        return Reader(name, identity, _Served(entry, choice))
    assert entry is not None
    identity["batch_size"] = choice.batch_size
    if choice.temperature > 0:
        raise InputError(f"temperature {choice.temperature:g}: the in-process reader is greedy, set temperature 0")
    engine = _OpenVino if choice.backend == "openvino" else _Transformers
    return Reader(name, identity, engine(entry, ensure(entry.name, progress), choice))


class _OpenVino:
    """OpenVINO GenAI on this machine's CPU, straight from a GGUF file, in small batches.

    On a CPU a token costs one reading of all weights, whoever it is for: several prompts at once write their answers at nearly
    the price of one. In another batch the last bits of a prompt's arithmetic differ, and with them some words of its answer, so
    `run_arm` keeps batches whole. A batch's seconds are shared equally among its prompts.
    """

    def __init__(self, entry: ModelEntry, path: Path, choice: ReaderChoice) -> None:
        # OpenVINO reports usage at import unless its telemetry package is absent; it has a stub for that case.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        import openvino_genai

        self._entry = entry
        self._batch_size = choice.batch_size
        try:
            self._pipeline: Any = openvino_genai.LLMPipeline(str(path), "CPU")
        except RuntimeError as error:
            raise ServiceError(f"openvino cannot read {path}: {' '.join(str(error).split())[:200]}") from error
        self._tokenizer = self._pipeline.get_tokenizer()
        self._config = self._pipeline.get_generation_config()
        self._config.do_sample = False
        self._config.max_new_tokens = choice.max_new_tokens
        # The chat template is applied here, so that the prompt's tokens are counted on exactly what the model reads.
        self._config.apply_chat_template = False

    def completions(self, chats: Sequence[list[dict[str, str]]]) -> Iterator[Completion]:
        for start in range(0, len(chats), self._batch_size):
            yield from self._complete(chats[start : start + self._batch_size])

    def count_tokens(self, text: str) -> int:
        return int(self._tokenizer.encode(text, add_special_tokens=False).input_ids.shape[1])

    def close(self) -> None:
        del self._pipeline, self._tokenizer

    def _complete(self, chats: Sequence[list[dict[str, str]]]) -> list[Completion]:
        started = time.perf_counter()
        rendered = [self._tokenizer.apply_chat_template(chat, add_generation_prompt=True) for chat in chats]
        tokens = self._tokenizer.encode(rendered, add_special_tokens=False)
        lengths = [int(length) for length in tokens.attention_mask.data.sum(axis=1)]
        _check_room(self._entry, max(lengths), self._config.max_new_tokens)
        result = self._pipeline.generate(tokens, self._config)
        seconds = (time.perf_counter() - started) / len(chats)
        return [
            Completion(
                text=_without_thought(self._tokenizer.decode(generated)),
                finish_reason=reason.name.lower(),
                prompt_tokens=length,
                completion_tokens=len(generated),
                seconds=seconds,
            )
            for generated, reason, length in zip(result.tokens, result.finish_reasons, lengths, strict=True)
        ]


class _Transformers:
    """transformers on this machine's CPU, from the same GGUF files: slower, but it reads tensors that OpenVINO cannot.

    The weights are unpacked into bfloat16 when they are loaded: kernels for packed ones took four times as long on two cores.
    """

    def __init__(self, entry: ModelEntry, path: Path, choice: ReaderChoice) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        self._entry = entry
        self._batch_size = choice.batch_size
        self._max_new_tokens = choice.max_new_tokens
        with quiet_loading():
            files = {"gguf_file": path.name, "local_files_only": True}
            unpacked = {"dtype": torch.bfloat16, "quantization_config": GgufConfig(dequantize=True)}
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(path.parent), padding_side="left", **files)
            self._model: Any = AutoModelForCausalLM.from_pretrained(str(path.parent), **unpacked, **files).eval()
        # A file's own sampling settings would only be ignored, with a remark each time.
        self._model.generation_config.update(do_sample=False, temperature=None, top_p=None, top_k=None)

    def completions(self, chats: Sequence[list[dict[str, str]]]) -> Iterator[Completion]:
        for start in range(0, len(chats), self._batch_size):
            yield from self._complete(chats[start : start + self._batch_size])

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def close(self) -> None:
        del self._model, self._tokenizer

    def _complete(self, chats: Sequence[list[dict[str, str]]]) -> list[Completion]:
        started = time.perf_counter()
        tokens = self._tokenizer.apply_chat_template(
            list(chats), add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        lengths = [int(length) for length in tokens["attention_mask"].sum(dim=1)]
        _check_room(self._entry, max(lengths), self._max_new_tokens)
        generated = self._model.generate(**tokens, max_new_tokens=self._max_new_tokens)[:, tokens["input_ids"].shape[1] :]
        ends = self._model.generation_config.eos_token_id
        stops = {ends} if isinstance(ends, int) else set(ends or ()) | {self._tokenizer.eos_token_id}
        seconds = (time.perf_counter() - started) / len(chats)
        completions = []
        for row, length in zip(generated.tolist(), lengths, strict=True):
            end = next((place for place, token in enumerate(row) if token in stops), None)
            text = self._tokenizer.decode(row[:end], skip_special_tokens=True)
            written = len(row) if end is None else end + 1
            reason = "length" if end is None else "stop"
            completions.append(Completion(_without_thought(text), reason, length, written, seconds))
        return completions


def _check_room(entry: ModelEntry, prompt_tokens: int, max_new_tokens: int) -> None:
    if prompt_tokens > entry.max_tokens - max_new_tokens:
        raise InputError(
            f"prompt of {prompt_tokens} tokens and an answer of {max_new_tokens} exceed {entry.name}'s "
            f"{entry.max_tokens}: give less context"
        )


class _Served:
    """Any server with an OpenAI-compatible `/chat/completions`."""

    def __init__(self, entry: ModelEntry | None, choice: ReaderChoice) -> None:
        assert choice.base_url is not None
        names = (entry.hub_id, choice.model, entry.name) if entry else (choice.model,)
        self._client = ServerClient(choice.base_url, names, choice.timeout_seconds)
        self._choice = choice
        self.count_tokens = functools.lru_cache(maxsize=4096)(self._count_tokens)

    def completions(self, chats: Sequence[list[dict[str, str]]]) -> Iterator[Completion]:
        """Up to `concurrency` chats are under way at once; the caller stopping early cancels those not yet sent."""
        waiting = iter(chats)
        running: deque[Future[Completion]] = deque()
        with ThreadPoolExecutor(self._choice.concurrency) as pool:
            try:
                for chat in waiting:
                    running.append(pool.submit(self._complete, chat))
                    if len(running) == self._choice.concurrency:
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self._client.close()

    def _complete(self, chat: list[dict[str, str]]) -> Completion:
        started = time.perf_counter()
        with self._client.faults():
            answer = self._client.api.chat.completions.create(
                model=self._client.model,
                messages=chat,  # type: ignore[arg-type]
                temperature=self._choice.temperature,
                max_tokens=self._choice.max_new_tokens,
                extra_body=self._choice.extra_body or None,
            )
            choices = answer.choices
            usage = answer.usage
        if not choices:
            raise self._client.failure("answered with no choices", "look at the server's log")
        text, reason = choices[0].message.content, choices[0].finish_reason
        if text is None and reason != "length":
            raise self._client.failure("answered with content null", "check the model's chat template and reasoning parser")
        if usage is None:
            raise self._client.failure("reported no token usage", "use a server that reports usage")
        # content null at the token limit is a model that was still thinking: an empty, truncated answer, and counted as one.
        return Completion(
            text=_without_thought(text or ""),
            finish_reason=str(reason),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=time.perf_counter() - started,
        )

    def _count_tokens(self, text: str) -> int:
        """By vLLM's `/tokenize`; elsewhere by the usage that a one-token completion reports, less the template's own tokens."""
        answer = self._client.post("/tokenize", {"model": self._client.model, "prompt": text, "add_special_tokens": False})
        if isinstance(answer, dict) and isinstance(answer.get("count"), int):
            return int(answer["count"])
        return self._prompt_tokens(text) - self._prompt_tokens("")

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def _prompt_tokens(self, text: str) -> int:
        with self._client.faults():
            answer = self._client.api.chat.completions.create(
                model=self._client.model, messages=[{"role": "user", "content": text}], max_tokens=1
            )
            if answer.usage is None:
                raise self._client.failure("has no /tokenize and reports no usage", "use a server with either")
            return answer.usage.prompt_tokens


def _as_chat(prompt: Prompt, place: int) -> list[dict[str, str]]:
    chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not (isinstance(chat, list) and chat and all(_is_message(message) for message in chat)):
        raise InputError(f'prompt {place} is neither a string nor a list of {{"role": ..., "content": ...}}')
    if not all(is_unicode(message["content"]) for message in chat):
        raise InputError(f"prompt {place} is not valid Unicode (a lone surrogate): repair its encoding")
    return chat


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)


def _without_thought(text: str) -> str:
    """A thinking model's answer without its `<think>` block; a block cut off by the token limit leaves nothing."""
    return _THOUGHT.sub("", text, count=1) if text.lstrip().startswith("<think>") else text
