"""Hot loops stay free of Python objects: what Cython's own annotation says about them, line by line.

One literal or name that is not a C number makes a compiled loop several times slower and no other test sees it.
Every line of a hot function must score zero, or be on the list below with the reason why it may not.
"""

from __future__ import annotations

import ast
import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketq.kernel.loading import MODULES

pytest.importorskip("Cython", reason="Cython is not installed: hot functions cannot be annotated")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KERNEL = Path("src/rocketq/kernel")

HOT = {
    "admission": [
        *(f"TokenBucket.{name}" for name in ("refill", "has_tokens", "take")),
        *(f"Grant.{name}" for name in ("is_over_quota", "charge", "is_for", "note")),
    ],
    "properties": ["java_hash", "PropertySpans.scan", "PropertySpans.note", "PropertySpans.delay_level"],
    "records": ["record_size", "RecordView.parse", "next_record"],
    "queue_units": ["QueueTail.put", "tags_code_of", "is_address"],
    "index_units": [
        "key_hash",
        "seconds_since",
        "IndexTail.put",
        "IndexTail.holds",
        "IndexTail.has_room",
        "IndexTail.defer",
        "IndexTail.drain",
        "IndexTail.put_at",
    ],
    "appender": [
        *("Appender.put", "Appender.put_seen", "Appender.write", "Appender.merge", "Appender.touch", "put_keys"),
        *("Appender.measure", "Appender.put_batch", "Appender.host_flags", "Appender.drain", "defer_keys"),
    ],
    "batch_properties": [f"BatchProperties.{name}" for name in ("load", "look", "tick", "add_sizes", "join")],
    "request_view": [
        *(f"RequestView.{name}" for name in ("clear", "add", "parse", "parse_at", "parse_binary", "parse_json")),
        *(f"RequestView.{name}" for name in ("parse_member", "put_number", "parse_fields", "mark_text")),
        *(f"RequestView.{name}" for name in ("is_named", "has_text", "is_simple", "number", "small_number")),
        *("unescape_json", "put_utf8", "hex_number", "credential_field", "skip_blank", "end_of_name", "colon_after"),
        *("end_of_text", "has_backslash", "is_null", "end_of_word", "member_of", "is_ascii", "number_at", "is_number"),
    ],
    "answers": [
        *("AnswerBuffer.put_piece", "AnswerBuffer.open_slot", "AnswerBuffer.close_slot", "AnswerBuffer.put_bytes"),
        *("AnswerBuffer.put_number", "AnswerBuffer.put_hex", "AnswerBuffer.put_field", "AnswerBuffer.finish"),
    ],
    "send_request": ["SendRequest.read", "SendRequest.take", "letter_field", "named_field"],
    "send_properties": [
        *(f"SendProperties.{name}" for name in ("load", "edit", "keeps", "has_name_before")),
        *("is_slow_name", "is_trace_name", "is_plain_or_cut", "is_plain_text", "is_true"),
    ],
    "signatures": [
        *("SignatureCheck.account_of", "SignatureCheck.verify", "SignatureCheck.sort_fields"),
        *("SignatureCheck.join_values", "is_signed_name", "compare_names"),
    ],
    "fast_sends": [
        *(f"FastSends.{name}" for name in ("parse", "execute", "store_one", "store_batch")),
        *(f"FastSends.{name}" for name in ("note", "answer", "put_ids")),
    ],
    "pull_request": ["PullRequest.read", "PullRequest.take", "pull_field"],
    "fast_pulls": ["FastPulls.set_limits", "FastPulls.answer"],
    "queue_cache": [f"QueueCache.{name}" for name in ("hash_of", "fetch", "place_of", "fetch_unit", "find")],
    "fast_frames": [
        *(f"FastFrames.{name}" for name in ("execute", "execute_all", "parse_ahead")),
        *(f"FastFrames.{name}" for name in ("family_of", "authenticate", "is_no_frame")),
    ],
    "residency": ["ResidentPages.forget", "ResidentPages.covers"],
    "reader": ["QueueRead.is_full", "QueueRead.is_full_from_disk", "is_of_queue"],
    "text_column": [f"TextColumn.{name}" for name in ("put", "put_nothing", "put_id", "put_host", "put_number")],
    "record_columns": [
        "RecordRows.parse_row",
        "RecordRows.put_numbers",
        "RecordRows.put_spans",
        "RecordRows.put_properties",
        "is_said_again",
    ],
    "batch_encode": [
        *("TextSource.start", "TextSource.length", "NumberSource.at", "digits_of", "is_clean"),
        *(f"BatchEncoder.{name}" for name in ("put", "put_number", "put_sequence", "ordinal_of")),
    ],
    "send_batch": ["UniqueIdSource.put", "SendBatch.put"],
    "filter_program": [
        *(f"FilterProgram.{name}" for name in ("run", "find", "step", "push", "is_listed", "is_found")),
        *("join", "equal", "compare", "order", "order_doubles", "convert", "to_integer", "to_double", "is_word_true"),
    ],
    "redeliver": [
        *(f"Redelivery.{name}" for name in ("deliver", "refuse", "read_place", "is_for_last", "is_born_at_last")),
    ],
    "scanner": [
        "Scanner.walk",
        "Scanner.drain",
        "Scanner.dispatch",
        "Scanner.dispatch_unit",
        "Scanner.count_keys",
        "is_torn",
        "has_key_hash",
    ],
}


@dataclass(frozen=True)
class Allowed:
    """Lines that match may score up to `score_max`."""

    pattern: str
    score_max: int
    reason: str

    def covers(self, text: str, score: int) -> bool:
        return score <= self.score_max and re.search(self.pattern, text) is not None


ALLOWED = [
    Allowed(
        r"equal_bytes\(p, at, (TAGS|KEYS|DELAY|UNIQ_KEY|REAL_TOPIC|REAL_QID), ",
        12,
        "a bytes constant is checked for None",
    ),
    Allowed(
        r"(born_host|self\._store_host|queue\.topic|found\.topic)\b",
        24,
        "a bytes field is checked for None, then it is a pointer",
    ),
    Allowed(r"^raise ", 30, "an error may cost what it likes"),
    Allowed(r"roll_index\(index\)", 20, "the owner's call, once per index file"),
    Allowed(r"queue\.owner\.(attach_file|make_room)\(", 8, "the owner's call, once per stretch of a queue file"),
    Allowed(r"self\.(misfit|cross)\(", 32, "the owner's call, for records that are out of the ordinary"),
    Allowed(r"self\.touched\.append\(queue\)", 8, "a list of queues, once per queue and wake-up"),
    Allowed(r"\btags_code_of\(", 6, "may fail, so its error is asked for"),
    Allowed(r"queue\.extend\(", 6, "the same, where units are extended"),
    Allowed(r"delays_ms", 30, "only units of the schedule topic look at the list of delays"),
    Allowed(
        r"self\.index = put_keys\(|^self\.(index|roll_index|_spans),|self\.index, self\.roll_index,", 6, "references"
    ),
    Allowed(r"^defer_keys\(self\.index, ", 6, "references"),
    Allowed(r"\bself\.put_seen\(.*, (record|inner)\)$", 2, "references"),
    Allowed(
        r"self\.due_of\(|appender\.put\(.*record\b|= self\.store_batch\(", 6, "may fail, so its error is asked for"
    ),
    Allowed(r"^found = self\._last$|^found\.tail,$|^self\.waiting = found\.tail$", 2, "references"),
    Allowed(r"^queue: QueueTail = None|queue = self\.queue_of\(p\)", 2, "references"),
    Allowed(r"^return (index|None)$", 2, "references"),
    Allowed(r"^\w+: [A-Z]\w+ = self\.\w+( if .* else self\.\w+)?$", 2, "references"),
    Allowed(r"^frame = (first|self\._first|frame\.next)$|^\w+: [A-Z]\w+ = (first|frame\.\w+)$", 2, "references"),
    Allowed(r"\bframe\.header, p\b|\.cache\.fetch\(self\._first, count\)$", 2, "references"),
    Allowed(r"^self\._request = request$|cast\(QueueTail, self\._places", 2, "references"),
    Allowed(r"self\._(cluster|host_hex), 0, ", 12, "a bytes field is checked for None, then it is a pointer"),
    Allowed(r"^out\.begin\(self\._templates\[which\], ", 12, "one of four templates, once per answer"),
    Allowed(r"^(view|spans|buffer): \w+ = self\.", 1, "a reference, once per row"),
    Allowed(r"^self\.(refused|queue|grant|_grant) = ", 2, "references"),
    Allowed(r"^frame\.account = |cast\(SendGrant, self\._places|grant\.is_for\(", 2, "references"),
    Allowed(r"^account: Account = |^return accounts\.find\(", 4, "references"),
    Allowed(r"^if not properties\.load\(.*, self\._grant\):$|^self\.note\(self\._grant, ", 2, "references"),
    Allowed(r"^queue = self\.(cache\.queue|find_delay_queue\(.*)$|^grant = grant\.delayed$", 2, "references"),
    Allowed(r"grant\.(group|suffix)\b", 12, "a bytes field is checked for None, then it is a pointer"),
    Allowed(r"^self\.grown\.append\(grant\)$", 8, "a list of grants, once per grant and read"),
    Allowed(r"^out\.begin\(self\._grant\.templates\[which\], ", 12, "one of four templates, once per answer"),
    Allowed(r"^for bucket in self\.(message|byte)_quotas:$", 14, "references; where there are quotas only"),
    Allowed(r"^return True$", 1, "drops the reference to the bucket without tokens"),
]


def directives() -> dict[str, object]:
    """Those of the real build."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "DIRECTIVES"
        ):
            return ast.literal_eval(node.value)
    raise LookupError("setup.py has no DIRECTIVES")


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, int]]:
    """Score of each line of each module, from a translation into a directory of its own."""
    target = tmp_path_factory.mktemp("annotated")
    script = (
        "from Cython.Build import cythonize; from setuptools import Extension; "
        f"cythonize([Extension('rocketq.kernel.' + name, ['{KERNEL}/' + name + '.py']) for name in {list(HOT)!r}], "
        f"compiler_directives={directives()!r}, build_dir={str(target)!r}, annotate=True, force=True, quiet=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name: dict(_scores((target / KERNEL / f"{name}.html").read_text())) for name in HOT}


def _scores(page: str) -> Iterator[tuple[int, int]]:
    for match in re.finditer(
        r'<pre class="cython line score-(\d+)"[^>]*>[^<]*<span class="">(\d+)</span>', html.unescape(page)
    ):
        yield int(match[2]), int(match[1])


def functions(module: str) -> dict[str, ast.FunctionDef]:
    """Functions by name, methods as Class.method."""
    tree = ast.parse((ROOT / KERNEL / f"{module}.py").read_text())
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        found |= {f"{owner.name}.{node.name}": node for node in owner.body if isinstance(node, ast.FunctionDef)}
    return found


def scored_lines(scores: dict[str, dict[int, int]], module: str, name: str) -> Iterator[tuple[int, int, str]]:
    """(number, score, text) of the lines of a function that touch Python objects."""
    function = functions(module)[name]
    lines = (ROOT / KERNEL / f"{module}.py").read_text().splitlines()
    for number in range(function.body[0].lineno, (function.end_lineno or 0) + 1):
        if score := scores[module][number]:
            yield number, score, lines[number - 1].strip()


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in HOT.items() for name in names])
def test_hot_function_works_on_c_numbers_only(scores: dict[str, dict[int, int]], module: str, name: str) -> None:
    """Goal: no line of a hot loop makes, asks or frees a Python object, but for the listed reasons."""
    slow = [
        f"{module}.py:{number} scores {score}: {text}"
        for number, score, text in scored_lines(scores, module, name)
        if not any(allowed.covers(text, score) for allowed in ALLOWED)
    ]
    assert not slow, "\n".join(slow)


def test_every_allowance_is_needed(scores: dict[str, dict[int, int]]) -> None:
    """Goal: the list of reasons does not outlive the lines it was made for."""
    lines = [
        (text, score)
        for module, names in HOT.items()
        for name in names
        for _, score, text in scored_lines(scores, module, name)
    ]
    unused = [allowed.pattern for allowed in ALLOWED if not any(allowed.covers(text, score) for text, score in lines)]
    assert not unused, "\n".join(unused)


def test_annotation_sees_python_objects_where_there_are_some(scores: dict[str, dict[int, int]]) -> None:
    """Goal: the check itself is alive: functions called from Python do score."""
    function = functions("queue_units")["unit_at"]
    assert sum(scores["queue_units"][line] for line in range(function.lineno, (function.end_lineno or 0) + 1)) > 20


def test_every_hot_module_is_one_that_the_build_compiles() -> None:
    """Goal: the check looks at the modules that are really compiled, with the build's own directives."""
    assert set(HOT) <= set(MODULES)
    assert directives()["boundscheck"] is False
    assert directives()["cdivision"] is True
