"""Served models: what a server does wrong is said on one line, and never becomes a vector or an answer."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from ragkit.errors import InputError, ServiceError
from ragkit.models import embedder as embedder_module
from ragkit.models import open_embedder, open_reader
from ragkit.profile import Profile

Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]


class Server:
    """A local server that answers as a test says: `answer(path, body) -> (status, JSON value or raw bytes)`."""

    def __init__(self) -> None:
        self.answer: Answer = lambda path, body: (404, {"error": {"message": "no such route"}})
        self.models = ["some/model"]
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[str] = []
        self.hang = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in outer.models]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append((self.path, body))
                outer.headers.append(self.headers.get("Authorization", ""))
                self._send(*outer.answer(self.path, body))

            def _send(self, status: int, value: Any) -> None:
                content = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def asked(self, path: str) -> list[dict[str, Any]]:
        return [body for seen, body in self.seen if seen == path]

    def close(self) -> None:
        self.hang.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def profile(server, monkeypatch) -> Profile:
    """Both models behind the local server; a word tokenizer stands in for the embedder's file."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    monkeypatch.setattr(embedder_module, "_load_tokenizer", lambda entry, progress: tokenizer)
    return Profile.model_validate(
        {
            "name": "served",
            "embedder": {
                "model": "bge-small-en-v1.5",
                "backend": "openai",
                "base_url": server.url,
                "batch_size": 4,
                "timeout_seconds": 0.1,
            },
            "reader": {
                "model": "qwen3-8b-awq",
                "backend": "openai",
                "base_url": server.url,
                "concurrency": 4,
                "timeout_seconds": 0.1,
                "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
            },
        }
    )


def patient(profile: Profile) -> Profile:
    """The profile with a timeout that a busy machine keeps."""
    return profile.model_copy(
        update={
            "embedder": profile.embedder.model_copy(update={"timeout_seconds": 30.0}),
            "reader": profile.reader.model_copy(update={"timeout_seconds": 30.0}),
        }
    )


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0] + [0.0] * 382


def embeddings(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    rows = [{"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
    return 200, {"object": "list", "model": "m", "data": rows[::-1], "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def chat(content: str | None = "fine", finish: str = "stop", usage: bool = True, choices: bool = True) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}
    answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice] if choices else []}
    return answer | ({"usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}} if usage else {})


def test_vectors_come_back_in_order_with_unit_norm_and_the_query_prefix(server, profile):
    server.answer = embeddings
    texts = ["word " * n for n in (3, 1, 7, 2, 9, 4)]
    with open_embedder(patient(profile)) as embedder:
        passages, queries = embedder.encode_passages(texts), embedder.encode_queries(texts[:1])
    expected = np.array([vector(text)[:2] for text in texts])
    np.testing.assert_allclose(passages[:, :2], expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(passages, axis=1), 1, atol=1e-6)
    assert passages.dtype == np.float32
    assert passages.flags.c_contiguous
    assert queries.shape == (1, 384)
    bodies = server.asked("/v1/embeddings")
    assert [len(body["input"]) for body in bodies] == [4, 2, 1]
    assert all(body["encoding_format"] == "float" and body["model"] == "some/model" for body in bodies)
    assert bodies[-1]["input"][0].startswith("Represent this sentence for searching relevant passages: word")


def _changed(change: Callable[[dict[str, Any]], None]) -> Answer:
    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        status, value = embeddings(path, body)
        change(value)
        return status, value

    return answer


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: [row.update(embedding=[1.0] * 3) for row in v["data"]], r"shape \(1, 3\), expected \(1, 384\)"),
        (lambda v: [row.update(embedding=[math.nan] * 384) for row in v["data"]], "zero or non-finite"),
        (lambda v: [row.update(embedding=[0.0] * 384) for row in v["data"]], "zero or non-finite"),
        (lambda v: [row.update(embedding=["x"] * 384) for row in v["data"]], "not the OpenAI format"),
        (lambda v: v.update(data=[]), "server http://127.0.0.1"),
        (lambda v: v.update(data=None), "server http://127.0.0.1"),
    ],
)
def test_wrong_vectors_are_refused(server, profile, change, said):
    server.answer = _changed(change)
    with open_embedder(patient(profile)) as embedder, pytest.raises(ServiceError, match=said):
        embedder.encode_passages(["text"])


def test_text_over_the_limit_is_refused_or_cut_and_counted(server, profile):
    server.answer = embeddings
    with open_embedder(patient(profile)) as embedder:
        with pytest.raises(InputError, match=r"text 1 has 602 tokens, over the 512 .*1 of 2 texts"):
            embedder.encode_passages(["short", "word " * 600])
        assert not server.asked("/v1/embeddings")
        embedder.encode_passages(["short", "word " * 600], truncate=True)
        assert embedder.truncated == 1
        assert {len(text.split()) for body in server.asked("/v1/embeddings") for text in body["input"]} == {1, 510}


@pytest.mark.parametrize("texts", ["one string", ["fine", None], ["\ud800"]])
def test_texts_that_are_no_list_of_strings_are_refused(profile, texts):
    with open_embedder(profile) as embedder, pytest.raises(InputError):
        embedder.encode_passages(texts)


def test_no_texts_make_no_request(server, profile):
    with open_embedder(profile) as embedder:
        assert embedder.encode_passages([]).shape == (0, 384)
    assert server.seen == []


def test_answers_keep_their_order_under_concurrency(server, profile):
    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        asked = body["messages"][-1]["content"]
        if asked == "question 0":
            server.hang.wait(0.1)
        return 200, chat(f"re: {asked}")

    server.answer = answer
    with open_reader(patient(profile)) as reader:
        completions = reader.answer([f"question {n}" for n in range(9)], progress=False)
    assert [c.text for c in completions] == [f"re: question {n}" for n in range(9)]
    assert {(c.finish_reason, c.prompt_tokens, c.completion_tokens) for c in completions} == {("stop", 11, 3)}
    body = server.asked("/v1/chat/completions")[0]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 256)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_chat_is_sent_as_it_is(server, profile):
    server.answer = lambda path, body: (200, chat())
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    with open_reader(patient(profile)) as reader:
        reader.answer([messages])
    assert server.asked("/v1/chat/completions")[0]["messages"] == messages


@pytest.mark.parametrize("prompt", [[], [{"role": "user"}], 3, [{"role": "user", "content": None}], "\ud800"])
def test_a_malformed_prompt_is_refused(profile, prompt):
    with open_reader(profile) as reader, pytest.raises(InputError, match="prompt 1"):
        reader.answer(["fine", prompt])


@pytest.mark.parametrize(
    ("status", "value", "said"),
    [
        (500, {"error": {"message": "out of memory"}}, r"answered 500 .*out of memory"),
        (401, {"error": {"message": "who are you"}}, "RAGKIT_API_KEY"),
        (200, chat(choices=False), "no choices"),
        (200, chat(choices=False) | {"choices": None}, "no choices"),
        (200, chat(content=None), "content null"),
        (200, chat(usage=False), "no token usage"),
        (200, b"<html>login</html>", "not the OpenAI format"),
        (200, b"[1, 2]", "not the OpenAI format"),
        (200, b"", "server http://127.0.0.1"),
    ],
)
def test_a_failing_server_is_one_line_that_names_it(server, profile, status, value, said):
    server.answer = lambda path, body: (status, value)
    with open_reader(patient(profile)) as reader, pytest.raises(ServiceError, match=said) as caught:
        reader.answer(["question"])
    assert server.url in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_failure_in_many_ends_the_call(server, profile):
    server.answer = lambda path, body: (500, {}) if body["messages"][0]["content"] == "q2" else (200, chat())
    with open_reader(patient(profile)) as reader:
        answers = reader.iter_answers([f"q{n}" for n in range(40)])
        assert [next(answers).text, next(answers).text] == ["fine", "fine"]
        with pytest.raises(ServiceError, match="answered 500"):
            next(answers)
    assert len({body["messages"][0]["content"] for body in server.asked("/v1/chat/completions")}) < 10


def test_a_passing_500_is_tried_again(server, profile):
    left = [500, 500]
    server.answer = lambda path, body: (left.pop(), {}) if left else (200, chat())
    with open_reader(patient(profile)) as reader:
        assert reader.answer(["question"])[0].text == "fine"


def test_a_hanging_server_ends_in_time(server, profile, monkeypatch):
    monkeypatch.setattr("ragkit.models.client._RETRIES", 0)
    server.answer = lambda path, body: (200, chat() if server.hang.wait(20) else b"")
    with open_reader(profile) as reader, pytest.raises(ServiceError, match=r"no answer in 0\.1 s: raise timeout_seconds"):
        reader.answer(["question"])


def test_no_server_at_all(server, profile, monkeypatch):
    monkeypatch.setattr("ragkit.models.client._RETRIES", 0)
    server.close()
    with open_reader(patient(profile)) as reader, pytest.raises(ServiceError, match="cannot be reached: start it"):
        reader.answer(["question"])


@pytest.mark.parametrize(
    ("content", "finish", "text"),
    [
        ("<think>\nhm\n</think>\n\nParis", "stop", "Paris"),
        ("<think>still thinking", "length", ""),
        (None, "length", ""),
        ("the tag <think> in an answer", "stop", "the tag <think> in an answer"),
    ],
)
def test_thinking_is_not_the_answer_and_truncation_is_kept(server, profile, content, finish, text):
    server.answer = lambda path, body: (200, chat(content, finish))
    with open_reader(patient(profile)) as reader:
        (completion,) = reader.answer(["question"])
    assert (completion.text, completion.finish_reason) == (text, finish)


@pytest.mark.parametrize(
    ("listed", "used"),
    [(["other", "Qwen/Qwen3-8B-AWQ"], "Qwen/Qwen3-8B-AWQ"), (["a-folder"], "a-folder"), ([], "Qwen/Qwen3-8B-AWQ")],
)
def test_the_served_name_is_the_hub_id_or_the_only_one(server, profile, listed, used):
    server.models = listed
    server.answer = lambda path, body: (200, chat())
    with open_reader(patient(profile)) as reader:
        reader.answer(["question"])
    assert server.asked("/v1/chat/completions")[0]["model"] == used


def test_several_other_models_are_refused(server, profile):
    server.models = ["one", "two"]
    with open_reader(patient(profile)) as reader, pytest.raises(ServiceError, match="serves one, two, not Qwen/Qwen3-8B-AWQ"):
        reader.answer(["question"])


def test_tokens_are_counted_by_the_server_either_way(server, profile):
    def vllm(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (200, {"count": len(body["prompt"].split())}) if path == "/tokenize" else (404, {})

    server.answer = vllm
    with open_reader(patient(profile)) as reader:
        assert [reader.count_tokens("one two three") for _ in range(3)] == [3, 3, 3]
        assert reader.count_tokens("") == 0
    assert len(server.asked("/tokenize")) == 1

    def other(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/tokenize":
            return 404, {}
        return 200, chat() | {
            "usage": {"prompt_tokens": 8 + len(body["messages"][0]["content"].split()), "completion_tokens": 1, "total_tokens": 9}
        }

    server.answer = other
    with open_reader(patient(profile)) as reader:
        assert reader.count_tokens("one two three") == 3


def test_the_key_is_sent_and_never_shown(server, profile, monkeypatch):
    monkeypatch.setenv("RAGKIT_API_KEY", "secret-key")
    server.answer = lambda path, body: (401, {"error": {"message": "Incorrect API key provided: secret-key"}})
    with open_reader(patient(profile)) as reader:
        with pytest.raises(ServiceError) as caught:
            reader.answer(["question"])
        assert "secret-key" not in str(caught.value) + repr(reader.identity) + repr(vars(reader))
    assert server.headers == ["Bearer secret-key"]


def test_closed_means_closed(profile):
    embedder, reader = open_embedder(profile), open_reader(profile)
    for opened in (embedder, reader):
        opened.close()
        opened.close()
    with pytest.raises(ServiceError, match="is closed"):
        embedder.encode_queries(["text"])
    with pytest.raises(ServiceError, match="is closed"):
        reader.answer(["text"])


def test_a_model_of_the_wrong_kind_or_backend_is_refused(profile):
    def with_part(part: str, **changes: Any) -> Profile:
        return profile.model_copy(update={part: getattr(profile, part).model_copy(update=changes)})

    with pytest.raises(InputError, match="is a reader, not an embedder"):
        open_embedder(with_part("embedder", model="qwen3-8b-awq"))
    with pytest.raises(InputError, match="is an embedder, not a reader"):
        open_reader(with_part("reader", model="bge-small-en-v1.5"))
    with pytest.raises(InputError, match="does not run on backend sentence-transformers: choose from openai"):
        open_embedder(with_part("embedder", backend="sentence-transformers"))
    with pytest.raises(InputError, match="does not run on backend openvino"):
        open_reader(with_part("reader", backend="openvino", model="qwen2.5-coder-0.5b-instruct"))
    with pytest.raises(InputError, match="unknown model 'my-own'"):
        open_embedder(with_part("embedder", model="my-own"))


def test_a_model_the_registry_does_not_know_is_asked_for_by_its_own_name(server, profile):
    server.models = ["llama3", "my-own"]
    server.answer = lambda path, body: (200, chat())
    own = profile.model_copy(update={"reader": patient(profile).reader.model_copy(update={"model": "my-own"})})
    with open_reader(own) as reader:
        reader.answer(["question"])
        assert (reader.identity["model"], reader.identity["weights"]) == ("my-own", None)
    assert server.asked("/v1/chat/completions")[0]["model"] == "my-own"
