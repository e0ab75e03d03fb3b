"""The experiment: every arm on the same items, journalled so that a killed run loses nothing, and its records as plain rows.

It puts prompts to a reader and checks what comes back. It never searches by itself and never decides what is significant.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from ragkit.errors import InputError, ServiceError
from ragkit.evaluation.arms import SEARCHED, ArmPrompt, arm_depth, arm_prompts
from ragkit.evaluation.checking import check_answer, contains_answer
from ragkit.evaluation.items import Record, covers, read_records, write_records, write_whole
from ragkit.lab import write_timings
from ragkit.models import open_embedder, open_reader
from ragkit.profile import Profile, RetrievalChoice, load_profile
from ragkit.records import Article, Completion, Hit, Task
from ragkit.retrieval.frozen import open_frozen, profile_chunks
from ragkit.retrieval.index import build_index

if TYPE_CHECKING:
    from ragkit.models import Reader


def _sha(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Journal:
    """Completions written one by one as they come, keyed by prompt and reader; what a kill leaves is taken up by the next run."""

    def __init__(self, file: Path):
        self.file = file
        self._lock = FileLock(f"{file}.lock")
        self._done: dict[str, Completion] = {}

    def __enter__(self) -> Journal:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise ServiceError(f"another run is writing {self.file}: wait for it to end, or stop it") from error
        whole = 0
        if self.file.exists():
            for line in self.file.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                try:
                    row = json.loads(line)
                    self._done[row["key"]] = Completion(**row["completion"])
                except (ValueError, TypeError, KeyError):
                    break  # the line that a kill tore: everything before it is whole
                whole += len(line)
            with self.file.open("r+b") as handle:
                handle.truncate(whole)
        self._handle = self.file.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()
        self._lock.release()

    def get(self, key: str) -> Completion | None:
        """The completion kept under a key, or None."""
        return self._done.get(key)

    def put(self, key: str, completion: Completion) -> None:
        """Keep a completion; it is on disk when this returns."""
        fields = ("text", "finish_reason", "prompt_tokens", "completion_tokens", "seconds")
        row = {"key": key, "completion": {name: getattr(completion, name) for name in fields}}
        self._handle.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._done[key] = completion

    def forget(self) -> None:
        """Remove the journal: its run is complete and stored elsewhere."""
        self.file.unlink(missing_ok=True)


def _record(prompt: ArmPrompt, prompt_digest: str, key: str, completion: Completion) -> Record:
    task = prompt.task
    verdict = check_answer(
        completion.text, task.gold_answer, task.aliases, answerable=task.answerable, finish_reason=completion.finish_reason
    )
    gold_articles = {gold.article_id for gold in task.golds}
    covering = (n for n, chunk in enumerate(prompt.context, 1) if any(covers(task, gold, chunk) for gold in task.golds))
    return {
        "task_id": task.task_id,
        "arm": prompt.arm,
        "split": task.split,
        "kind": task.kind,
        "answerable": task.answerable,
        "cluster": task.golds[0].article_id if task.golds else None,
        "question": task.question,
        "gold_answer": task.gold_answer,
        "answer": completion.text,
        "correct": verdict.correct,
        "rule": verdict.rule,
        "refused": verdict.refused,
        "gives_counterfactual": contains_answer(completion.text, task.counterfactual) if task.counterfactual else None,
        "finish_reason": completion.finish_reason,
        "context": [chunk.chunk_id for chunk in prompt.context],
        "context_tokens": prompt.context_tokens,
        "cut": prompt.cut,
        "article_in_context": bool(gold_articles & {chunk.article_id for chunk in prompt.context}),
        "gold_chunk_rank": next(covering, None),
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "prompt_sha256": prompt_digest,
        "key": key,
    }


def run_arm(
    prompts: Sequence[ArmPrompt],
    reader: Reader,
    journal: Path,
    progress: bool = True,
    known: Mapping[str, Completion] | None = None,
) -> tuple[list[Record], list[float]]:
    """Put one arm's prompts to the reader and check the answers; what a killed run finished is not asked again.

    Parameters
    ----------
    journal : file of this run's journal; it stays until `Journal.forget`, so that the caller stores the records first.
    known : completions of an earlier whole run by their keys (`stored_completions`), taken where the key is the same.

    Returns
    -------
    (records, seconds): one row a task in the order of `prompts`, and the reader's wall seconds for each.
    """
    digests = [_sha(prompt.messages) for prompt in prompts]
    size = reader.batch_size
    batches = [range(start, min(start + size, len(prompts))) for start in range(0, len(prompts), size)]
    # An answer may depend on the prompts that were answered with it, so a batch is one unit: its prompts are part of each key,
    # and one that a kill left incomplete is asked again whole.
    keys = [_sha([[digests[p] for p in batch], place, reader.identity]) for batch in batches for place in range(len(batch))]
    known = known or {}
    with Journal(journal) as kept:

        def done(place: int) -> Completion | None:
            return kept.get(keys[place]) or known.get(keys[place])

        missing = [p for batch in batches if any(done(p) is None for p in batch) for p in batch]
        name = prompts[0].arm if prompts else "arm"
        bar = tqdm(total=len(prompts), initial=len(prompts) - len(missing), desc=name, unit="item", disable=not progress)
        for place, completion in zip(missing, reader.iter_answers([prompts[p].messages for p in missing]), strict=True):
            kept.put(keys[place], completion)
            bar.update(1)
        bar.close()
        completions = [done(place) for place in range(len(prompts))]
    rows = zip(prompts, digests, keys, completions, strict=True)
    records = [_record(p, d, k, c) for p, d, k, c in rows if c is not None]
    return records, [completion.seconds for completion in completions if completion is not None]


def stored_completions(folder: Path, split: str, arm: str) -> dict[str, Completion]:
    """The completions of an arm's stored rows by their keys, so that a stage that became stale asks only what changed.

    A key holds the prompt, its batch and the reader: where it is the same, so is the answer. Rows that do not parse, or were
    written by an older form of this package, are asked again.
    """
    try:
        rows = read_records(folder / "runs" / split, [arm])[arm]
        seconds = json.loads((folder / "metrics" / f"eval_{split}_{arm}.timings.json").read_text(encoding="utf-8"))["by_item"]
        return {
            row["key"]: Completion(
                row["answer"], row["finish_reason"], row["prompt_tokens"], row["completion_tokens"], seconds[row["task_id"]]
            )
            for row in rows
        }
    except (InputError, OSError, ValueError, KeyError, TypeError):
        return {}


def retrieval_of(profile: Profile, arm: str) -> RetrievalChoice:
    """The retrieval choices of an arm: the profile's, for A5 with its rung added."""
    return profile.rung if arm == "A5" else profile.retrieval


def run_profile_arm(
    profile: str | Path | Profile, split: str, arm: str, artifacts: str | Path, fresh: bool = False
) -> dict[str, Any]:
    """One arm of a profile on the frozen tasks of a split: `runs/SPLIT/ARM.jsonl`, `metrics/eval_SPLIT_ARM.timings.json`.

    A killed run leaves `journal/SPLIT_ARM.jsonl` and goes on from there, on another machine too if that file is committed.
    Answers stored under the same key (prompt, batch, reader) are taken over, unless `fresh` asks everything again.

    Returns
    -------
    `identity` of the reader, and how many answers were `asked` now and `kept` from the stored run.
    """
    profile = load_profile(profile)
    folder = Path(artifacts) / profile.name
    journal = folder / "journal" / f"{split}_{arm}.jsonl"
    known = {} if fresh else stored_completions(folder, split, arm)
    frozen = open_frozen(profile, artifacts)
    tasks = frozen.select(split, profile.evaluation.limit)
    chunks, k = frozen.index.chunks, profile.retrieval.k
    choice = retrieval_of(profile, arm)
    hits: list[list[Hit]] = [[] for _ in tasks]
    reranked = None
    if arm in SEARCHED and choice.rerank is None:
        hits = frozen.hits(tasks, arm_depth(arm, k, chunks), choice)
    elif arm in SEARCHED:
        from ragkit.retrieval.search import rerank_times  # here, as in `Frozen.find`

        found = frozen.find(tasks, arm_depth(arm, k, chunks), choice)
        hits, reranked = [one.hits for one in found], rerank_times(found)
    with open_reader(profile) as reader:
        prompts = arm_prompts(
            arm, tasks, hits, chunks, k, profile.reader.context_tokens, reader.count_tokens, profile.evaluation.seed
        )
        records, seconds = run_arm(prompts, reader, journal, known=known)
    write_records(records, folder / "runs" / split / f"{arm}.jsonl")
    write_timings(f"eval_{split}_{arm}", timings(records, seconds, reranked), profile.name, artifacts)
    Journal(journal).forget()
    kept = sum(row["key"] in known for row in records)
    return {"identity": reader.identity, "asked": len(records) - kept, "kept": kept}


def evaluate(
    profile: str | Path | Profile,
    articles: Sequence[Article],
    tasks: Sequence[Task],
    folder: str | Path,
    arms: Sequence[str],
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """Any arms on any tasks and corpus, under one folder; what an earlier call finished is not asked again.

    Phase A embeds corpus and questions and closes the embedder; phase B opens the reader and runs arm after arm. Writes
    `ARM.jsonl`, `ARM.timings.json`, `journal/`, `index/` and `rag_report.json`, and returns the report.

    Raises
    ------
    InputError
        No tasks, or an arm that these tasks cannot supply.
    """
    # Imported here: the costly stages (`run_profile_arm`) must not go stale when only the statistics change.
    from ragkit.evaluation.report import rag_report, retrieval_rows, write_report
    from ragkit.retrieval.search import open_retriever, rerank_times

    profile, folder = load_profile(profile), Path(folder)
    if not tasks:
        raise InputError("no tasks to run: the split or the limit left none")
    with open_embedder(profile) as embedder:
        chunks = profile_chunks(profile, articles, embedder.tokenizer)
        index = build_index(chunks, embedder, folder / "index")
        vectors = embedder.encode_queries([task.question for task in tasks])
    k = profile.retrieval.k
    depth = max(arm_depth(arm, k, index.chunks) for arm in arms)
    found = {}
    for arm in dict.fromkeys(("A4", "A5" if "A5" in arms else "A4")):
        with open_retriever(index, profile, retrieval_of(profile, arm)) as retriever:
            found[arm] = retriever.search_many([task.question for task in tasks], vectors, depth)
    records: dict[str, list[Record]] = {}
    with open_reader(profile) as reader:
        identity = reader.identity
        for arm in arms:
            own = found["A5" if arm == "A5" else "A4"]
            hits = [one.hits for one in own]
            prompts = arm_prompts(
                arm, tasks, hits, index.chunks, k, profile.reader.context_tokens, reader.count_tokens, profile.evaluation.seed
            )
            records[arm], seconds = run_arm(prompts, reader, folder / "journal" / f"{arm}.jsonl")
            write_records(records[arm], folder / f"{arm}.jsonl")
            reranked = rerank_times(own) if arm in SEARCHED else None
            write_whole(folder / f"{arm}.timings.json", timings(records[arm], seconds, reranked))
    made = {**provenance, "profile": profile.digest, "reader": identity, "index": index.manifest["key"]}
    report = rag_report(
        records,
        retrieval_rows(tasks, [one.hits[:k] for one in found["A4"]], k),
        k,
        profile.evaluation.primary,
        made,
        profile.evaluation.seed,
    )
    write_report(report, folder)
    return report


def timings(records: Sequence[Record], seconds: Sequence[float], reranked: dict[str, float] | None = None) -> dict[str, Any]:
    """Seconds an item and tokens a second of one arm (wall time of the reader alone), and the seconds of each item.

    `reranked` (`rerank_times`) is kept beside them where the arm's chunks were reranked.
    """
    total = sum(seconds)
    return {
        **({"rerank": reranked} if reranked else {}),
        "items": len(records),
        "seconds": total,
        "seconds_per_item": total / len(records) if records else 0.0,
        "completion_tokens_per_second": sum(row["completion_tokens"] for row in records) / total if total else 0.0,
        "by_item": {row["task_id"]: round(taken, 3) for row, taken in zip(records, seconds, strict=True)},
    }
