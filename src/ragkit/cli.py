"""The same functions from a shell. Exit status 0, 1 (the work failed) or 2 (wrong words); an error is one line with a remedy.

Each command imports what it needs when it runs, so that `ragkit --help` is instant. Nothing is computed here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from ragkit import __version__
from ragkit.errors import InputError, RagkitError

if TYPE_CHECKING:
    from ragkit.corpus import Fetch
    from ragkit.models import Embedder
    from ragkit.profile import Profile
    from ragkit.records import Answer
    from ragkit.retrieval import Index

INDEX = ".ragkit"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong on one line and leave with status 2."""
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=False, default=str))


# --- snapshot, index -------------------------------------------------------------------------------------------------


def _print_rejections(rejected: Sequence[tuple[int, str]], shown: int = 5) -> None:
    """Say how many rows were rejected and why, the first few by name."""
    if rejected:
        print(f"rejected {len(rejected)} of the rows:")
    for row, reason in rejected[:shown]:
        print(f"  row {row}: {reason}")
    if len(rejected) > shown:
        print(f"  … and {len(rejected) - shown} more (--json lists all)")


NEWS = "spaceflight-news"


def _snapshot(args: argparse.Namespace) -> int:
    from ragkit.corpus import read_feeds, write_snapshot

    fetch = _fetched(args)
    sources = fetch.pages if fetch else args.source
    reading = read_feeds(sources, now=datetime.now(UTC), since=args.since, until=args.until)
    snapshot = reading.snapshot
    write_snapshot(snapshot, args.out, overwrite=args.overwrite)
    if fetch and fetch.missing:
        print(
            f"ragkit snapshot: the API counts {abs(fetch.missing)} articles {'more' if fetch.missing > 0 else 'fewer'} than were "
            "found; it changed while it was paged, or miscounts: run again with --refresh, or with an --until in the past",
            file=sys.stderr,
        )
    if args.json:
        result = {
            "articles": len(snapshot.articles),
            "digest": snapshot.digest,
            "rows": reading.rows,
            "reasons": reading.reasons,
            "rejected": snapshot.rejected,
            "with_html": reading.with_html,
            "out": args.out,
        }
        _print_json({**result, "fetch": _fetch_json(fetch)} if fetch else result)
        return 0
    if fetch:
        kept = fetch.pages[0].parent
        print(f"{len(fetch.pages)} pages, {fetch.from_disk} of them from disk ({kept}/); {fetch.retries} requests repeated")
        if fetch.from_disk and not fetch.asked:
            print("nothing was asked for: --refresh fetches anew")
    print(f"{len(snapshot.articles)} articles written to {args.out}")
    print(f"digest {snapshot.digest}")
    if reading.with_html:
        print(f"HTML turned to plain text in {reading.with_html} rows")
    _print_rejections(snapshot.rejected)
    return 0


def _fetched(args: argparse.Namespace) -> Fetch | None:
    """The pages of the news API where the source asks for it; its options are refused where it does not."""
    from ragkit.corpus import NewsQuery, fetch_news

    options = ("since", "until", "limit", "base_url", "version", "page_size", "raw", "refresh")
    if NEWS not in args.source:
        given = [f"--{name.replace('_', '-')}" for name in options if getattr(args, name)]
        if given:
            raise InputError(f"{given[0]} belongs to the source {NEWS}, not to {args.source[0]}: leave it out")
        return None
    if len(args.source) > 1:
        raise InputError(f"{NEWS} is fetched alone: write it to a snapshot, then merge that with the other sources")
    asked = {name: getattr(args, name) for name in options[:6] if getattr(args, name) is not None}
    return fetch_news(NewsQuery(**asked), args.raw or Path(args.out).with_suffix(".raw"), refresh=args.refresh, progress=True)


def _fetch_json(fetch: Fetch) -> dict[str, Any]:
    return {
        "url": fetch.query.url,
        "query": fetch.query.digest,
        "pages": len(fetch.pages),
        "asked": fetch.asked,
        "from_disk": fetch.from_disk,
        "retries": fetch.retries,
        "found": fetch.found,
        "overlaps": fetch.overlaps,
        "counts": fetch.counts,
        "missing": fetch.missing,
        "raw": str(fetch.pages[0].parent),
    }


def _index(args: argparse.Namespace) -> int:
    from ragkit.corpus import read_snapshot
    from ragkit.models import open_embedder
    from ragkit.profile import load_profile
    from ragkit.retrieval import build_index, profile_chunks

    profile = load_profile(args.profile)
    snapshot = read_snapshot(args.source)
    provenance = {
        "snapshot": snapshot.digest,
        "source": str(Path(args.source).resolve()),
        "articles": len(snapshot.articles),
        "chunking": profile.chunking.model_dump(),
        "profile": profile.name,
    }
    with open_embedder(profile) as embedder:
        chunks = profile_chunks(profile, snapshot.articles, embedder.tokenizer)
        index = build_index(chunks, embedder, args.index, provenance, rebuild=args.rebuild)
    result = {
        "articles": len(snapshot.articles),
        "chunks": len(index),
        "embedded": index.embedded,
        "rejected": snapshot.rejected,
        "key": index.manifest["key"],
        "snapshot": snapshot.digest,
        "index": args.index,
    }
    if args.json:
        _print_json(result)
        return 0
    work = f"{index.embedded} chunks embedded" if index.embedded else "nothing to embed"
    print(f"{result['articles']} articles, {result['chunks']} chunks in {args.index}/ ({work}); index {result['key']}")
    _print_rejections(snapshot.rejected)
    return 0


# --- ask, ab ---------------------------------------------------------------------------------------------------------


def _open_current(folder: str, embedder: Embedder) -> Index:
    """Open the index and refuse it where its source has changed since, or where another embedder built it."""
    from ragkit.corpus import read_snapshot
    from ragkit.retrieval import open_index

    index = open_index(folder)
    index.check_embedder(embedder)
    source = index.manifest["provenance"].get("source")
    if source is None:
        return index
    if not Path(source).exists():
        raise InputError(
            f"the index in {folder} was built from {source}, which is gone: index the new place with `ragkit index SOURCE`"
        )
    if read_snapshot(source).digest != index.manifest["snapshot"]:
        raise InputError(f"the index in {folder} is stale: {source} has changed since it was built; run `ragkit index {source}`")
    return index


def _where(conditions: Sequence[str]) -> dict[str, Any] | None:
    """`source=NASA published_at>=2024-07-01` as the mapping that a search takes."""
    where: dict[str, list[tuple[str, str]]] = {}
    for condition in conditions:
        for operator in ("<=", ">=", "!=", "=", "<", ">"):
            field, found, value = condition.partition(operator)
            if found:
                where.setdefault(field.strip(), []).append((operator, value.strip()))
                break
        else:
            raise InputError(f"--where {condition!r} is not FIELD=VALUE, FIELD>=VALUE, …: an example is published_at>=2024-07-01")
    return dict(where) or None


def _retrieving(args: argparse.Namespace) -> Profile:
    """The profile that a command names, with the method and the rerank that its words choose."""
    from ragkit.profile import load_profile

    profile = load_profile(args.profile)
    changes: dict[str, Any] = {} if args.method is None else {"method": args.method}
    named = {"model": args.rerank_model, "base_url": args.rerank_url}
    given = {name: value for name, value in named.items() if value is not None}
    if args.rerank == "off":
        changes["rerank"] = None
    elif args.rerank is not None:
        before = profile.retrieval.rerank
        same = before.model_dump() if before is not None and before.backend == args.rerank else {"backend": args.rerank}
        changes["rerank"] = {**same, **given}
    if given and args.rerank in (None, "off"):
        raise InputError(f"--rerank-{'model' if args.rerank_model else 'url'} needs --rerank: say which backend scores")
    return profile.with_retrieval(**changes) if changes else profile


def _threshold(args: argparse.Namespace, profile: Profile) -> float | None:
    return profile.retrieval.min_cosine if args.min_cosine is None else args.min_cosine


def _answer(args: argparse.Namespace, profile: Profile, bare: bool) -> tuple[Answer, Answer | None]:
    from ragkit.answering import answer_bare, answer_question
    from ragkit.models import Reader, open_embedder, open_reader
    from ragkit.retrieval import open_retriever

    opened: list[Reader] = []

    def reader() -> Reader:
        if not opened:
            opened.append(open_reader(profile))
        return opened[0]

    try:
        with open_embedder(profile) as embedder:
            index = _open_current(args.index, embedder)
            embedder.encode_queries(["warm up"])  # the first call allocates; what is timed is a question like any other
            with open_retriever(index, profile) as retriever:
                answer = answer_question(
                    args.question,
                    index,
                    embedder,
                    reader,
                    k=args.k or profile.retrieval.k,
                    where=_where(args.where),
                    min_cosine=_threshold(args, profile),
                    context_tokens=profile.reader.context_tokens,
                    retriever=retriever,
                )
        return answer, answer_bare(args.question, reader()) if bare else None
    finally:
        for one in opened:
            one.close()


def _answer_json(answer: Answer) -> dict[str, Any]:
    completion = answer.completion
    return {
        "question": answer.question,
        "answer": answer.text,
        "refused": answer.refused,
        "citations": [
            {"number": c.number, "chunk_id": c.chunk_id, "title": c.title, "published_at": c.published_at, "url": c.url}
            for c in answer.citations
        ],
        "unknown_citations": list(answer.unknown_citations),
        "hits": [{"rank": hit.rank, "chunk_id": hit.chunk.chunk_id, "cosine": hit.cosine} for hit in answer.hits],
        "finish_reason": completion.finish_reason if completion else None,
        "retrieval_ms": 1000 * answer.retrieval_seconds,
        "rerank_ms": None if answer.rerank_seconds is None else 1000 * answer.rerank_seconds,
        "generation_ms": 1000 * completion.seconds if completion else None,
    }


def _times(answer: Answer) -> str:
    generation = f"generation {1000 * answer.completion.seconds:.0f} ms" if answer.completion else "reader not called"
    rerank = "" if answer.rerank_seconds is None else f" (rerank {1000 * answer.rerank_seconds:.0f} ms of it)"
    return f"retrieval {1000 * answer.retrieval_seconds:.1f} ms{rerank}, {generation}"


def _scores(answer: Answer) -> str:
    return "top scores " + (" ".join(f"{hit.cosine:.3f}" for hit in answer.hits[:5]) or "none")


def _answer_lines(answer: Answer, threshold: float | None) -> list[str]:
    lines = [answer.text, ""]
    if answer.refused == "threshold":
        best = f"the best score is {max(hit.cosine for hit in answer.hits):.3f}" if answer.hits else "no chunk was found"
        lines.append(f"I don't know: {best}, the threshold {threshold}; lower it with --min-cosine to see what is there")
    for c in answer.citations:
        lines.append(f"[{c.number}] {c.title} · {(c.published_at or 'no date')[:10]} · {c.url or 'no url'} · {c.chunk_id}")
    for number in answer.unknown_citations:
        lines.append(f"[{number}] was cited but never given")
    if answer.refused is None and not answer.citations:
        lines.append("no source was cited: check the answer against the chunks (--json lists them)")
    if answer.completion and answer.completion.finish_reason == "length":
        lines.append("the answer was cut at the profile's max_new_tokens")
    return [*lines, _scores(answer), _times(answer)]


def _ask(args: argparse.Namespace) -> int:
    profile = _retrieving(args)
    answer, _ = _answer(args, profile, bare=False)
    if args.json:
        _print_json(_answer_json(answer))
    else:
        print("\n".join(_answer_lines(answer, _threshold(args, profile))))
    return 0


def _side_by_side(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    half = max(30, (width - 3) // 2)
    columns = [[part for line in side for part in (textwrap.wrap(line, half) or [""])] for side in (left, right)]
    height = max(map(len, columns))
    padded = [column + [""] * (height - len(column)) for column in columns]
    return [f"{a:<{half}} │ {b}".rstrip() for a, b in zip(*padded, strict=True)]


def _ab(args: argparse.Namespace) -> int:
    profile = _retrieving(args)
    answer, bare = _answer(args, profile, bare=True)
    assert bare is not None
    if args.json:
        _print_json({"with_retrieval": _answer_json(answer), "without_retrieval": _answer_json(bare)})
        return 0
    left = ["WITH RETRIEVAL", "", *_answer_lines(answer, _threshold(args, profile))]
    right = ["WITHOUT RETRIEVAL", "", bare.text, "", _times(bare)]
    print("\n".join(_side_by_side(left, right, shutil.get_terminal_size((120, 24)).columns)))
    return 0


# --- run, eval, reproduce --------------------------------------------------------------------------------------------


def _parameters(pairs: Sequence[str]) -> dict[str, Any]:
    parameters = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--parameter {pair!r} is not NAME=VALUE: an example is k=3")
        parameters[name.strip()] = yaml.safe_load(value)
    return parameters


def _run(args: argparse.Namespace) -> int:
    from ragkit.lab import run_notebook

    path = run_notebook(args.notebook, args.profile, _parameters(args.parameter), args.artifacts)
    print(f"executed notebook: {path}")
    return 0


def _eval(args: argparse.Namespace) -> int:
    from ragkit.corpus import check_tasks, read_snapshot, read_tasks, tasks_digest
    from ragkit.evaluation.arms import ARMS
    from ragkit.evaluation.collections import read_squad
    from ragkit.evaluation.experiment import evaluate
    from ragkit.profile import resolve

    profile = _retrieving(args)
    arms = tuple(args.arms.split(",")) if args.arms else profile.evaluation.arms
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise InputError(f"unknown arm {unknown[0]!r}: choose from {', '.join(ARMS)}")
    if args.squad:
        articles, tasks = read_squad(args.squad, args.sample, args.seed)
        source = Path(args.squad).name
    else:
        articles = read_snapshot(args.articles or resolve(profile.evaluation.snapshot)).articles
        split = args.split or ("all" if args.tasks else profile.evaluation.split)
        tasks = tuple(
            task for task in read_tasks(args.tasks or resolve(profile.evaluation.tasks)) if split in ("all", task.split)
        )
        source = f"{Path(args.tasks).name if args.tasks else profile.evaluation.tasks}, split {split}"
    tasks = tasks[: args.limit or profile.evaluation.limit]
    if problems := check_tasks(tasks, articles):
        _say(f"note: {len(problems)} problems between tasks and articles, the first: {problems[0]}; see `ragkit tasks check`")
    out = Path(args.out or Path(INDEX) / "eval" / profile.name)
    report = evaluate(profile, articles, tasks, out, arms, {"source": source, "tasks": tasks_digest(tasks)})
    if args.json:
        _print_json(report)
    else:
        print("\n".join(_report_lines(report)))
        print(f"rows, times and the report are in {out}/")
    return 0


def _report_lines(report: dict[str, Any]) -> list[str]:
    """Gains and harms first, then the difference with its interval, then the p-values, then the marginals."""
    lines = []
    for name, c in report["comparisons"].items():
        low, high = c["interval"]
        declared = " (primary)" if name == report["primary"] else ""
        lines += [
            f"{c['treated']} − {c['control']}{declared}: harms {c['harms']} {' '.join(c['harm_ids'][:8])}",
            f"  gains {c['gains']}, both {c['both']}, neither {c['neither']}, n = {c['n']}",
            f"  difference {c['delta']:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}: {c['verdict']}",
            f"  McNemar exact p = {c['mcnemar_p']:.3g}, mid-p = {c['mcnemar_midp']:.3g}",
        ]
    for arm, row in report["arms"].items():
        acc = row["accuracy"]
        shown = "no answerable item" if acc["rate"] is None else f"{acc['count']}/{acc['n']} = {acc['rate']:.3f}"
        due = row["refusals"]["due"]
        refused = f"; refused {due['count']}/{due['n']} unanswerable" if due["n"] else ""
        lines.append(f"{arm} correct {shown}{refused}")
    retrieval = report["retrieval"]
    if retrieval["recall_at_k"] is not None:
        lines.append(f"retrieval: recall@{report['k']} {retrieval['recall_at_k']:.3f}, MRR {retrieval['mrr']:.3f} (articles)")
    return lines


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _only_over(file: Path, what: str, read: Callable[[Path], object]) -> None:
    """Refuse to write over a file that is there and is not what this command writes: it is the user's."""
    if not file.exists():
        return
    try:
        read(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is there and is not {what}: nothing was written over it; choose another file") from error


def _is_curation(file: Path) -> None:
    report = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(report, dict) or "tasks_digest" not in report:
        raise InputError(f"{file} is no curation")


def _reproduce(args: argparse.Namespace) -> int:
    from ragkit.evaluation.fetching import collections_at_hand, fetch_collection
    from ragkit.evaluation.reproduce import read_published, reproduce
    from ragkit.profile import load_profile

    profile, published = load_profile(args.profile), read_published()
    for name in args.fetch:
        fetch_collection(name)
    found = reproduce(published, collections_at_hand(args.data), profile, _say)
    if args.json:
        _print_json(found.as_dict())
    else:
        print("\n".join(found.lines()))
    if not found.outcomes:
        _say("nothing was measured: give --data with a folder of collections, or --fetch SET")
    return 1 if found.missed else 0


def _reproduce_one(args: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from ragkit.evaluation.collections import read_collection
    from ragkit.evaluation.fetching import addresses, collections_at_hand
    from ragkit.evaluation.reproduce import Method, rank_collection, retrieval_report
    from ragkit.evaluation.trec import read_run, write_run
    from ragkit.models import open_embedder
    from ragkit.profile import load_profile

    folder, profile = Path(args.folder), load_profile(args.profile)
    if not folder.is_dir() and args.folder in addresses():
        if args.folder not in collections_at_hand():
            raise InputError(f"{folder} is not a folder; the set of that name is fetched by `ragkit reproduce --fetch {folder}`")
        folder = collections_at_hand()[args.folder][0]
    method = Method(
        name=args.method,
        model=None if args.method == "bm25" else profile.embedder.model,
        k1=args.k1,
        b=args.b,
        tokenizer=args.tokenizer,
        variant=args.variant,
    )
    collection = read_collection(folder, args.kind, args.split, args.graded)
    for note in collection.notes:
        _say(f"note: {note}")
    if args.run:
        _only_over(Path(args.run), "a run in TREC's format", read_run)
    with nullcontext() if args.method == "bm25" else open_embedder(profile.in_float32()) as embedder:
        run = rank_collection(collection, method, embedder, args.index)
        truncated = embedder.truncated if embedder else 0
    lost = sum(not found for found in run.values())
    if lost:
        _say(f"note: {lost} of {len(run)} queries found nothing and count zero")
    if args.run:
        write_run(args.run, {query: found for query, found in run.items() if found})
    report = {**retrieval_report(run, collection.qrels), "queries": len(collection.queries), "truncated": truncated}
    if args.json:
        _print_json(report)
    else:
        for name, value in report.items():
            print(f"{name:<12} {value:.4f}" if isinstance(value, float) else f"{name:<12} {value}")
    return 0


# --- tasks -----------------------------------------------------------------------------------------------------------


def _tasks_check(args: argparse.Namespace) -> int:
    from ragkit.corpus import check_tasks, read_snapshot, read_tasks
    from ragkit.evaluation.benchmark import question_overlap, same_questions

    tasks, articles = read_tasks(args.tasks), read_snapshot(args.articles).articles
    problems = check_tasks(tasks, articles)
    problems += [f"tasks {a} and {b} may ask the same ({similarity:.2f})" for a, b, similarity in same_questions(tasks)]
    texts = {article.article_id: article.text for article in articles}
    spanned = [t for t in tasks if t.golds and all(g.start is not None and g.article_id in texts for g in t.golds)]
    overlaps = [question_overlap(task, texts) for task in spanned]
    without = sum(not overlap.shared for overlap in overlaps)
    if args.json:
        shared = {overlap.task_id: overlap.shared for overlap in overlaps}
        _print_json(
            {"tasks": len(tasks), "problems": problems, "spans": len(spanned), "without_overlap": without, "shared": shared}
        )
    else:
        print("\n".join(problems), end="\n" if problems else "")
        print(
            f"{len(tasks)} tasks, {len(problems)} problems; {without} of {len(spanned)} share no content word with their evidence"
        )
    return 1 if problems else 0


def _tasks_curate(args: argparse.Namespace) -> int:
    from ragkit.corpus import read_snapshot, read_tasks, tasks_digest
    from ragkit.evaluation.benchmark import solved_without_evidence
    from ragkit.lab.metrics import as_json, write_text
    from ragkit.models import open_embedder, open_reader
    from ragkit.profile import load_profile
    from ragkit.retrieval.frozen import profile_chunks

    profile = load_profile(args.profile)
    tasks, articles = read_tasks(args.tasks), read_snapshot(args.articles).articles
    if args.out:
        _only_over(Path(args.out), "a report of `ragkit tasks curate`", _is_curation)
    with open_embedder(profile) as embedder:
        chunks = profile_chunks(profile, articles, embedder.tokenizer)
    with open_reader(profile) as reader:
        journals = Path(INDEX) / "curate" / profile.name
        solved = solved_without_evidence(tasks, chunks, reader, profile.reader.context_tokens, args.seed, journals)
        identity = reader.identity
    found = {
        "tasks_digest": tasks_digest(tasks),
        "asked": sum(t.answerable for t in tasks),
        "seed": args.seed,
        "reader": identity,
    }
    if args.out:
        write_text(Path(args.out), as_json({**found, **solved}))
    if args.json:
        _print_json({**found, **solved})
    else:
        for name, ids in solved.items():
            print(f"{name}: {len(ids)} of {found['asked']} answered right: {', '.join(ids) or 'none'}")
    return 0


def _tasks_freeze(args: argparse.Namespace) -> int:
    from datetime import date

    from ragkit.corpus import read_tasks
    from ragkit.evaluation.benchmark import freeze_split

    freeze = freeze_split(read_tasks(args.tasks), args.split, args.out, date.today())
    counts = f"{freeze['answerable']} answerable and {freeze['unanswerable']} unanswerable tasks"
    print(f"{args.split}: {counts}, frozen on {freeze['frozen_on']} as {freeze['digest'][:16]} in {args.out}")
    return 0


# --- vram, models ----------------------------------------------------------------------------------------------------


def _spec(name: str) -> Any:
    """A model's configuration: a config.json, or a name of the bundled table."""
    import csv

    from ragkit.profile import REPOSITORY
    from ragkit.vram import ModelSpec, specs_from_table

    if Path(name).exists():
        return ModelSpec.from_config(name)
    table = REPOSITORY / "data" / "model_configs.csv"
    with table.open(encoding="utf-8", newline="") as stream:
        specs = specs_from_table(csv.DictReader(line for line in stream if not line.startswith("#")))
    found = [spec for known, spec in specs.items() if name.lower() in (known.lower(), known.split("/")[-1].lower())]
    if not found:
        raise InputError(
            f"no bundled configuration of {name!r}: give the path of its config.json, or one of {', '.join(sorted(specs)[:6])}, …"
        )
    return found[0]


def _vram(args: argparse.Namespace) -> int:
    from ragkit.vram import card_gib_from_marketing, format_plan, plan, vllm_flags

    card = args.card_gib if args.card_gib is not None else card_gib_from_marketing(args.card)[0]
    embedder = (_spec(args.embedder), args.embedder_dtype)
    made = plan(
        card,
        (_spec(args.model), args.dtype),
        embedder,
        max_model_len=args.max_model_len,
        utilization=args.utilization,
        live=args.live,
    )
    flags = vllm_flags(made) if made.fits else {}
    if args.json:
        _print_json(
            {
                "card_gib": made.card_gib,
                "model": made.generator[0].name,
                "dtype": args.dtype,
                "placement": made.placement,
                "limiting": made.limiting,
                "headroom_bytes": made.headroom_bytes,
                "kv_tokens": made.kv_tokens,
                "kv_tokens_high": made.kv_tokens_high,
                "lines": [{"name": x.name, "bytes": x.bytes, "low": x.low, "phase": x.phase, "note": x.note} for x in made.lines],
                "flags": {role: " ".join(words) for role, words in flags.items()},
            }
        )
    else:
        print(format_plan(made))
        for role, words in flags.items():
            print(f"{role}: vllm serve {' '.join(words)}")
    return 0 if made.fits else 1


def _models(args: argparse.Namespace) -> int:
    from ragkit.models import delete, fetch, list_models, model_path, verify

    if args.action == "list":
        rows = list_models()
        if args.json:
            from dataclasses import asdict

            _print_json([asdict(row) for row in rows])
            return 0
        for row in rows:
            size = f"{row.bytes / 1e6:,.0f} MB" if row.bytes else "served only"
            print(f"{row.name:<32} {row.kind:<9} {size:>12}  {'here' if row.present else 'not here':<9} {row.licence}")
        return 0
    if not args.name:
        raise InputError(f"ragkit models {args.action} needs a name: `ragkit models list` shows them")
    for name in args.name:
        if args.action == "fetch":
            print(f"{name}: {fetch(name)}")
        elif args.action == "verify":
            print(f"{name}: {len(verify(name))} files as pinned")
        elif args.action == "path":
            print(model_path(name))
        else:
            print(f"{name}: {delete(name) / 1e6:,.0f} MB deleted")
    return 0


# --- the words -------------------------------------------------------------------------------------------------------


def _command(commands: Any, name: str, function: Any, help: str, example: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(function=function)
    return parser


def _natural(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return number


_natural.__name__ = "whole number"


def _first_moment(text: str, end: bool = False) -> datetime:
    from ragkit.corpus import day_or_moment

    try:
        return day_or_moment(text, end)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _last_moment(text: str) -> datetime:
    return _first_moment(text, end=True)


def _add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question")
    parser.add_argument("--profile", default="cpu", help="a name in profiles/ or a .yaml path (default: cpu)")
    parser.add_argument("--index", default=INDEX, metavar="DIR", help=f"the index's folder (default: {INDEX})")
    parser.add_argument("-k", type=_natural, help="chunks to give to the reader (default: the profile's)")
    parser.add_argument(
        "--min-cosine", type=float, metavar="X", help="answer \"I don't know\" below this score (default: the profile's)"
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="FIELD>=VALUE", help="only chunks that meet this; may be repeated"
    )
    _add_retrieval(parser)
    parser.add_argument("--json", action="store_true")


def _add_retrieval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", choices=("dense", "bm25", "hybrid"), help="how chunks are found (default: the profile's)")
    parser.add_argument(
        "--rerank",
        choices=("off", "cross-encoder", "server", "reader"),
        help="who scores the first candidates again, if anyone (default: the profile's)",
    )
    parser.add_argument("--rerank-model", metavar="NAME", help="its model: a name, a folder or a hub id")
    parser.add_argument(
        "--rerank-url", metavar="URL", help="with --rerank server: where it answers, such as http://localhost:8002/v1"
    )


def parser() -> argparse.ArgumentParser:
    """All words of the command line."""
    root = _Parser(prog="ragkit", description="Retrieval-augmented generation over a folder or snapshot, measured.")
    root.add_argument("--version", action="version", version=f"ragkit {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)

    one = _command(
        commands,
        "snapshot",
        _snapshot,
        "read articles from anywhere and write one Parquet snapshot",
        "ragkit snapshot data/articles articles.parquet\n"
        "         ragkit snapshot saved-v3.json saved-v4.json feed.rss news.parquet\n"
        "         ragkit snapshot spaceflight-news news.parquet --since 2026-01-01 --until 2026-03-31",
    )
    one.add_argument(
        "source",
        nargs="+",
        help="a .parquet .csv .jsonl(.gz) .json .rss .atom .xml file, or a folder of .md and .txt; several are merged; "
        f"{NEWS}: the Spaceflight News API",
    )
    one.add_argument("out", help="the .parquet file to write")
    one.add_argument("--overwrite", action="store_true", help="replace a snapshot of other content")
    one.add_argument("--json", action="store_true")
    news = one.add_argument_group(NEWS, "pages are kept on disk; a killed fetch goes on where it stopped")
    news.add_argument("--since", type=_first_moment, metavar="DATE", help="published then or later")
    news.add_argument("--until", type=_last_moment, metavar="DATE", help="published then or earlier; a day counts whole")
    news.add_argument("--limit", type=_natural, metavar="N", help="the newest N articles (default: all)")
    news.add_argument("--base-url", metavar="URL", help="another server than the public one")
    news.add_argument("--version", choices=("v2", "v3", "v4"), help="of the API (default: v4)")
    news.add_argument("--page-size", type=_natural, metavar="N", help="articles a request, 500 at most (default: 500)")
    news.add_argument("--raw", metavar="DIR", help="where responses are kept (default: OUT with the ending .raw)")
    news.add_argument("--refresh", action="store_true", help="fetch anew what is kept")

    one = _command(
        commands,
        "index",
        _index,
        "chunk and embed a snapshot or folder; unchanged input embeds nothing",
        "ragkit index my-notes/",
    )
    one.add_argument("source", help="anything that `ragkit snapshot` reads")
    one.add_argument("--profile", default="cpu")
    one.add_argument("--index", default=INDEX, metavar="DIR", help=f"where the index lives (default: {INDEX})")
    one.add_argument("--rebuild", action="store_true", help="embed everything again")
    one.add_argument("--json", action="store_true")

    _add_question(
        _command(
            commands,
            "ask",
            _ask,
            "answer a question from the index, with citations",
            'ragkit ask "Why did the station move in April 2025?"',
        )
    )
    _add_question(
        _command(
            commands, "ab", _ab, "the same question with and without retrieval, side by side", 'ragkit ab "Who chairs the board?"'
        )
    )

    one = _command(
        commands,
        "run",
        _run,
        "execute a notebook headless with a profile's parameters",
        "ragkit run notebooks/01_chunking.py --profile cpu -p size=128",
    )
    one.add_argument("notebook")
    one.add_argument("--profile", default="cpu")
    one.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE")
    one.add_argument("--artifacts", default="artifacts", metavar="DIR")

    one = _command(
        commands,
        "eval",
        _eval,
        "run arms on tasks and compare them, pairwise; a killed run resumes",
        "ragkit eval --profile cpu --arms A1,A4",
    )
    one.add_argument("--profile", default="cpu")
    one.add_argument("--arms", help="comma-separated (default: the profile's)")
    one.add_argument("--tasks", metavar="FILE", help="tasks as JSON lines (default: the profile's)")
    one.add_argument("--articles", metavar="SOURCE", help="the corpus (default: the profile's snapshot)")
    one.add_argument("--squad", metavar="FILE", help="a SQuAD 1.1 file as tasks and corpus instead")
    one.add_argument("--sample", type=_natural, metavar="N", help="with --squad: draw N questions")
    one.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    one.add_argument("--split", choices=("dev", "test", "all"))
    one.add_argument("--limit", type=_natural, metavar="N", help="the first N tasks only")
    _add_retrieval(one)
    one.add_argument("--out", metavar="DIR", help=f"default: {INDEX}/eval/PROFILE")
    one.add_argument("--json", action="store_true")

    one = _command(
        commands,
        "tasks",
        None,
        "check, curate and freeze the questions of an evaluation",
        "ragkit tasks check my-tasks.jsonl --articles my-notes/",
    )
    kinds = one.add_subparsers(dest="kind", metavar="KIND", required=True, parser_class=_Parser)
    check = _command(
        kinds,
        "check",
        _tasks_check,
        "what is wrong between tasks and articles, and how far questions repeat their evidence",
        "ragkit tasks check my-tasks.jsonl --articles my-notes/",
    )
    curate = _command(
        kinds,
        "curate",
        _tasks_curate,
        "tasks that a reader solves bare, or from an article drawn at random: they need no evidence",
        "ragkit tasks curate my-tasks.jsonl --articles my-notes/ --profile ci --seed 1 --out curation.json",
    )
    freeze = _command(
        kinds,
        "freeze",
        _tasks_freeze,
        "write down the digest of a split; other tasks are refused afterwards",
        "ragkit tasks freeze my-tasks.jsonl --split test --out frozen.json",
    )
    for one in (check, curate, freeze):
        one.add_argument("tasks", help="tasks as JSON lines")
    for one in (check, curate):
        one.add_argument("--articles", required=True, metavar="SOURCE", help="the corpus: anything that `ragkit snapshot` reads")
        one.add_argument("--json", action="store_true")
    curate.add_argument("--profile", default="ci", help="whose reader is asked; not the one that will be evaluated (default: ci)")
    curate.add_argument("--seed", type=int, default=1, help="of the draw of articles (default: 1)")
    curate.add_argument("--out", metavar="FILE", help="write what was found as JSON")
    freeze.add_argument("--split", default="test", choices=("dev", "test"))
    freeze.add_argument("--out", default="frozen.json", metavar="FILE", help="default: frozen.json")

    one = _command(
        commands,
        "vram",
        _vram,
        "what fits on a card: every byte of a generator beside an embedder",
        "ragkit vram Qwen/Qwen3-8B --dtype awq --card 16",
    )
    one.add_argument("model", help="a bundled model's name or the path of a config.json")
    card = one.add_mutually_exclusive_group()
    card.add_argument("--card", type=_natural, default=16, metavar="GB", help="the size it is sold as (default: 16)")
    card.add_argument("--card-gib", type=float, metavar="GIB", help="the GiB that CUDA sees, such as 15.55")
    one.add_argument("--dtype", default="bf16", choices=("bf16", "fp16", "fp8", "awq", "gptq", "nvfp4", "bnb-nf4", "q8_0"))
    one.add_argument("--embedder", default="BAAI/bge-small-en-v1.5")
    one.add_argument("--embedder-dtype", default="fp16", choices=("fp16", "bf16"))
    one.add_argument("--max-model-len", type=_natural, default=8192, metavar="N")
    one.add_argument("--utilization", type=float, default=0.9)
    one.add_argument("--live", action="store_true", help="questions arrive while the generator runs: no time-sharing")
    one.add_argument("--json", action="store_true")

    one = _command(
        commands, "models", _models, "pinned weights: list, fetch, verify, path, delete", "ragkit models fetch all-minilm-l6-v2"
    )
    one.add_argument("action", choices=("list", "fetch", "verify", "path", "delete"))
    one.add_argument("name", nargs="*")
    one.add_argument("--json", action="store_true")

    one = _command(
        commands,
        "reproduce",
        _reproduce,
        "published figures, measured again by this code: all whose data and weights are at hand, or one collection",
        "ragkit reproduce --data collections/",
    )
    one.add_argument("--data", metavar="DIR", help="a folder that holds scifact/, cranfield/, … (default: those fetched before)")
    one.add_argument("--fetch", action="append", default=[], metavar="SET", help="first bring a set from its public address")
    one.add_argument("--profile", default="cpu")
    one.add_argument("--json", action="store_true")
    kinds = one.add_subparsers(dest="kind", metavar="KIND", parser_class=_Parser)
    for kind, holds in (
        ("beir", "a BEIR folder: corpus.jsonl, queries.jsonl and qrels/test.tsv"),
        ("cranfield", "the Cranfield collection: cran.all.1400, cran.qry and cranqrel"),
        ("npl", "the NPL (Vaswani) collection: doc-text, query-text and rlv-ass"),
        ("trec", "a TREC-style folder: documents and topics as SGML, JSON lines or TSV, and qrels"),
    ):
        one = _command(kinds, kind, _reproduce_one, holds, f"ragkit reproduce {kind} FOLDER --method bm25 --k1 1.5")
        one.add_argument("folder", help="each file also with .gz; or the name of a set that was fetched")
        one.add_argument("--method", default="dense", choices=("dense", "bm25", "hybrid"), help="default: dense")
        one.add_argument("--k1", type=float, default=1.2, help="of BM25 (default: 1.2)")
        one.add_argument("--b", type=float, default=0.75, help="of BM25 (default: 0.75)")
        one.add_argument("--tokenizer", default="plain", choices=("plain", "names"), help="of BM25 (default: plain)")
        one.add_argument("--variant", default="lucene", choices=("lucene", "robertson", "atire", "bm25l", "bm25+"))
        one.add_argument("--split", default="test", help="which of several qrels (default: test)")
        one.add_argument("--graded", action="store_true", help="Cranfield: read its inverse grades as gains")
        one.add_argument("--profile", default=argparse.SUPPRESS, help="whose embedder, in float32 (default: cpu)")
        one.add_argument("--index", metavar="DIR", help="keep the dense index here (default: thrown away)")
        one.add_argument("--run", metavar="FILE", help="write the ranking as a TREC run")
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    return root


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; every error that a user can mend is one line on standard error."""
    args = parser().parse_args(words)
    try:
        return int(args.function(args))
    except RagkitError as error:
        print(f"ragkit {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nragkit {args.command}: stopped; what was finished is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
