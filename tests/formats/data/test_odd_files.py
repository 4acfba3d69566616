# ruff: noqa: E501 - tables of cases, one a line
"""Malformed and odd input files, each with its exact message or with what is accepted of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from formats.data import DataOptions, open_dataset
from formats.errors import BadRowsError, DataError

GOOD = b'{"question": "q", "answer": "a"}\n'
FLAGS = "name the fields with --field prompt=... --field response=..."


def spread(value: object) -> bytes:
    return json.dumps(value, indent=2).encode()


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


# name of the file, its bytes, how many rows are read from it, the last response
ACCEPTED = {
    "byte order mark": ("a.jsonl", b"\xef\xbb\xbf" + GOOD, 1, "a"),
    "byte order mark inside, from joined files": ("a.jsonl", GOOD + b"\xef\xbb\xbf" + GOOD, 2, "a"),
    "CRLF": ("a.jsonl", GOOD.replace(b"\n", b"\r\n") * 2, 2, "a"),
    "blank lines": ("a.jsonl", b"\n \n" + GOOD + b"\n" + GOOD + b"\n\n\r\n", 2, "a"),
    "no line end at the end": ("a.jsonl", GOOD + GOOD.strip(), 2, "a"),
    "upper-case suffix": ("A.JSONL", GOOD, 1, "a"),
    "ndjson": ("a.ndjson", GOOD, 1, "a"),
    "JSON lines named .json": ("a.json", GOOD * 2, 2, "a"),
    "array named .jsonl": ("a.jsonl", b"[" + GOOD + b"," + GOOD + b"]", 2, "a"),
    "array with a byte order mark": ("a.json", b"\xef\xbb\xbf[" + GOOD + b"]", 1, "a"),
    "array on one line": ("a.json", b"[" + GOOD.strip() + b"," + GOOD.strip() + b"]", 2, "a"),
    "array over many lines": ("a.json", spread([{"question": "q", "answer": "é"}]), 1, "é"),
    "one object, one row": ("a.json", spread({"question": "q", "answer": "a"}), 1, "a"),
    "one conversation is a row and no wrapper": (
        "a.json",
        spread(
            {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
        ),
        1,
        "a",
    ),
    "a row's tools are no array of rows": (
        "a.json",
        spread({"messages": [{"role": "assistant", "content": "a"}], "tools": [{"name": "f"}]}),
        1,
        "a",
    ),
    "object around an array": (
        "a.json",
        spread({"version": 1, "tags": ["x"], "data": [{"question": "q", "answer": "a"}] * 3}),
        3,
        "a",
    ),
    "object around an array of conversations": (
        "a.json",
        spread({"messages": [{"conversations": [{"from": "gpt", "value": "a"}]}]}),
        1,
        "a",
    ),
    "gzip": ("a.jsonl.gz", gzip.compress(GOOD * 3), 3, "a"),
    "gzip without saying so": ("a.jsonl", gzip.compress(GOOD * 3), 3, "a"),
    "gzip in two members": ("a.jsonl.gz", gzip.compress(GOOD) + gzip.compress(GOOD), 2, "a"),
    "named .gz but plain": ("a.jsonl.gz", GOOD, 1, "a"),
    "packed array": ("a.json.gz", gzip.compress(b"[" + GOOD + b"]"), 1, "a"),
    "types that differ between rows": (
        "a.jsonl",
        lines(
            {"question": "q", "answer": "a", "id": 1, "tags": "x"},
            {"question": "q", "answer": "b", "id": "seven", "tags": ["x", "y"]},
            {"question": "q", "answer": "c", "id": None, "tags": {"x": 1}},
        ),
        3,
        "c",
    ),
    "shapes that differ between rows": (
        "a.jsonl",
        lines({"question": "q", "answer": "a"}, {"instruction": "i", "output": "o"}),
        2,
        "o",
    ),
    "columns that are null in this row": (
        "a.jsonl",
        lines({"messages": None, "prompt": "p", "completion": "c", "text": None}),
        1,
        "c",
    ),
    "an empty response is a row, to be counted later": (
        "a.jsonl",
        lines({"question": "q", "answer": ""}),
        1,
        "",
    ),
    "surrogates in a pair": ("a.jsonl", b'{"question": "q", "answer": "\\ud83d\\ude00"}', 1, "😀"),
    "a word that looks like an escape": (
        "a.jsonl",
        lines({"question": "q", "answer": "\\udon"}),
        1,
        "\\udon",
    ),
    "a NUL character in text": ("a.jsonl", lines({"question": "q", "answer": "a\0b"}), 1, "a\0b"),
    "line separators in text": (
        "a.jsonl",
        '{"question": "q", "answer": "a\u2028b\x85c"}'.encode(),
        1,
        "a\u2028b\x85c",
    ),
    "CSV with CRLF, byte order mark, quotes and line ends in cells": (
        "a.csv",
        b'\xef\xbb\xbfquestion,answer\r\n"a ""b"", c","two\r\nlines"\r\n',
        1,
        "two\r\nlines",
    ),
    "TSV": ("a.tsv", b"question\tanswer\nq, r\ta\n", 1, "a"),
    "CSV with blank lines at the end": ("a.csv", b"question,answer\nq,a\n\n\n", 1, "a"),
    "CSV with a conversation as JSON text": (
        "a.csv",
        b'messages\n"[{""role"": ""assistant"", ""content"": ""a""}]"\n',
        1,
        "a",
    ),
    "packed CSV": ("a.csv.gz", gzip.compress(b"question,answer\nq,a\n"), 1, "a"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str, tmp_path: Path) -> None:
    name, content, rows, response = ACCEPTED[case]
    file = tmp_path / name
    file.write_bytes(content)
    with open_dataset([str(file)]) as dataset:
        assert (len(dataset), dataset.rejected) == (rows, 0)
        assert dataset[rows - 1].messages[-1]["content"] == response


# name of the file, its bytes, number of the bad line, why it is bad; a good row follows where
# lines are independent, so that one bad row of two is reported
BAD_ROWS = {
    "not JSON": ("a.jsonl", b'{"question": "q" "answer": "a"}\n', 1, "invalid JSON: Expecting ',' delimiter (column 18)"),
    "cut off": ("a.jsonl", GOOD + b'{"question": "q", "ans', 2, "invalid JSON: Unterminated string starting at (column 19)"),
    "two objects on a line": ("a.jsonl", GOOD.strip() * 2, 1, "invalid JSON: Extra data (column 33)"),
    "single quotes": ("a.jsonl", b"{'question': 'q'}\n", 1, "invalid JSON: Expecting property name enclosed in double quotes (column 2)"),
    "NULs left by a crash": ("a.jsonl", GOOD + b"\0" * 20, 2, "invalid JSON: Expecting value (column 1)"),
    "NaN": ("a.jsonl", b'{"question": "q", "answer": "a", "x": NaN}', 1, "invalid JSON: NaN is not a JSON number"),
    "Infinity": ("a.jsonl", b'{"question": "q", "answer": "a", "x": -Infinity}', 1, "invalid JSON: -Infinity is not a JSON number"),
    "nested too deeply": ("a.jsonl", b'{"question": "q", "answer": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 1, "invalid JSON: nested too deeply"),
    "Latin-1": ("a.jsonl", '{"question": "q", "answer": "é"}'.encode("latin-1"), 1, "not UTF-8 (byte 0xe9 at position 30)"),
    "Latin-1 in an array": ("a.json", b"[" + GOOD + b"," + '{"answer": "é"}'.encode("latin-1") + b"]", 2, "not UTF-8 (byte 0xe9 at position 13)"),
    "Latin-1 in CSV": ("a.csv", "question,answer\nq,é\n".encode("latin-1"), 2, "not UTF-8 (byte 0xe9 at position 30)"),
    "lone surrogate": ("a.jsonl", b'{"question": "q", "answer": "\\ud83d"}', 1, "holds a lone surrogate (U+D83D), which is no character"),
    "lone surrogate in a column nobody asked for": ("a.jsonl", b'{"question": "q", "answer": "a", "x": "\\uDC00"}', 1, "holds a lone surrogate (U+DC00), which is no character"),
    "encoded surrogate": ("a.jsonl", b'{"question": "q", "answer": "\xed\xa0\x80"}', 1, "not UTF-8 (byte 0xed at position 30)"),
    "a list": ("a.jsonl", b"[1, 2]\n" + GOOD, 1, "a row must be an object, not a list"),
    "a number": ("a.jsonl", GOOD + b"7\n", 2, "a row must be an object, not a number"),
    "null in an array": ("a.json", b"[" + GOOD + b", null]", 2, "a row must be an object, not null"),
    "empty object": ("a.jsonl", b"{}\n", 1, "no known shape (keys: none); name its fields, such as --field prompt=NAME --field response=NAME"),
    "text and code": ("a.jsonl", lines({"text": "t", "code": "c", "task_id": 1}), 1, "no known shape (keys: text, code, task_id); name its fields, such as --field prompt=text --field response=code"),
    "a context beside the question": ("a.jsonl", lines({"context": "c", "question": "q", "answer": "a"}), 1, "no known shape (keys: context, question, answer); name its fields, such as --field prompt=context --field prompt=question --field response=answer"),
    "capitals": ("a.jsonl", lines({"Body": "b", "Question": "q", "Answer": 1.0}), 1, "no known shape (keys: Body, Question, Answer); name its fields, such as --field prompt=Body --field prompt=Question --field response=Answer"),
    "preference pairs": ("a.jsonl", lines({"prompt": "p", "chosen": "c", "rejected": "r"}), 1, "no known shape (keys: prompt, chosen, rejected); name its fields, such as --field prompt=prompt --field response=chosen"),
    "a labelled text": ("a.jsonl", lines({"text": "t", "label": 1}), 1, "no known shape (keys: text, label); name its fields, such as --field prompt=text --field response=label"),
    "many columns": ("a.jsonl", lines({f"c{i}": "x" for i in range(15)}), 1, "no known shape (keys: c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11 and 3 more); name its fields, such as --field prompt=c0 --field response=c14"),
    "response is null": ("a.jsonl", lines({"question": "q", "answer": None}), 1, "'answer' is null (keys: question, answer)"),
    "response is a number": ("a.jsonl", lines({"question": "q", "answer": 3}), 1, f"'answer' is a number (3), not text; a class label? {FLAGS}"),
    "response is true": ("a.jsonl", lines({"question": "q", "answer": True}), 1, "'answer' is true or false, not text"),
    "response is an object": ("a.jsonl", lines({"question": "q", "answer": {"text": "a"}}), 1, "'answer' is an object, not text"),
    "two responses": ("a.jsonl", lines({"instruction": "i", "output": "a", "response": "b"}), 1, f"both 'output' and 'response' are given and differ; {FLAGS}"),
    "messages is text": ("a.jsonl", lines({"messages": "hello"}), 1, "'messages' is text, not a list of turns"),
    "no turns": ("a.jsonl", lines({"messages": []}), 1, "'messages' holds no turns"),
    "a turn is text": ("a.jsonl", lines({"messages": ["hello"]}), 1, "turn 1: a turn must be an object, not text"),
    "no role": ("a.jsonl", lines({"messages": [{"content": "hello"}]}), 1, "turn 1: no role (keys: content)"),
    "unknown role": ("a.jsonl", lines({"messages": [{"role": "narrator", "content": "x"}]}), 1, "turn 1: unknown role 'narrator' (known: system, user, assistant, tool)"),
    "content is null": ("a.jsonl", lines({"messages": [{"role": "user", "content": None}]}), 1, "turn 1: 'content' is null, not text"),
    "content is a picture": ("a.jsonl", lines({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), 1, "turn 1: 'content' has a part of type 'image_url'; only text can be trained"),
    "only the user speaks": ("a.jsonl", lines({"conversations": [{"from": "human", "value": "x"}]}), 1, "no assistant turn, so there is nothing to learn"),
    "broken function call": ("a.jsonl", lines({"conversations": [{"from": "function_call", "value": "f(x)"}]}), 1, "turn 1: a function call must be an object with a name, not text"),
    "two system prompts": ("a.jsonl", lines({"system": "s", "conversations": [{"from": "system", "value": "t"}, {"from": "gpt", "value": "x"}]}), 1, "'system' and the first turn give two different system prompts"),
    "empty text": ("a.jsonl", lines({"text": ""}), 1, "'text' is empty, so there is nothing to learn"),
    "too few cells": ("a.csv", b"question,answer\nq,a\nq\n", 3, "not valid CSV: 1 cells where the header has 2"),
    "too many cells": ("a.csv", b"question,answer\nq,a,b\n", 2, "not valid CSV: 3 cells where the header has 2"),
    "a quote that never closes": ("a.csv", b'question,answer\n"q,a\nq,a\n', 2, "not valid CSV: unexpected end of data"),
    "a line after a cell of two lines": ("a.csv", b'question,answer\nq,"a\nb"\nq\n', 4, "not valid CSV: 1 cells where the header has 2"),
    "empty file": ("a.jsonl", b"", 1, "holds no rows"),
    "nothing but blank lines": ("a.jsonl", b"\n\n", 1, "holds no rows"),
    "nothing but a byte order mark": ("a.jsonl", b"\xef\xbb\xbf", 1, "holds no rows"),
    "empty array": ("a.json", b"[]", 1, "holds no rows"),
    "CSV of a header alone": ("a.csv", b"question,answer\n", 1, "holds no rows"),
    "empty CSV": ("a.csv", b"", 1, "holds no rows"),
    "empty gzip": ("a.jsonl.gz", gzip.compress(b""), 1, "holds no rows"),
    "an error page": ("a.json", b"<html>Not found</html>", 1, "invalid JSON: Expecting value (column 1)"),
    "columns instead of rows": ("a.json", spread({"question": ["q"], "answer": ["a"]}), 1, "'question' is a list, not text"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_row(case: str, tmp_path: Path) -> None:
    name, content, line, reason = BAD_ROWS[case]
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(BadRowsError) as caught:
        open_dataset([str(file)])
    assert caught.value.data["rows"] == [(str(file), line, reason)]
    said = f"{file}:{line}: {reason}"
    if reason == "holds no rows":
        assert str(caught.value) == f"{file} holds no rows"
    else:
        assert str(caught.value).endswith(f"--on-bad-row skip:\n  {said}")


def test_one_fault_of_all_rows_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"qestion": "a", "answer": "b"}\n' * 4000)
    with pytest.raises(BadRowsError) as caught:
        open_dataset(
            [str(file)], DataOptions(fields=(("prompt", "question"), ("response", "answer")))
        )
    assert str(caught.value) == (
        f"none of the 4,000 rows can be used; {file}:1, like all: 'question' is missing "
        "(keys: qestion, answer; did you mean 'qestion'?)"
    )


# name of the file, its bytes, the message with FILE for its path
BROKEN_FILES = {
    "UTF-16": ("a.jsonl", GOOD.decode().encode("utf-16"), "FILE is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE > utf8.jsonl"),
    "Git LFS pointer": ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "FILE is a Git LFS pointer, not the data; run: git lfs pull"),
    "Parquet under another name": ("a.jsonl", b"PAR1\0\0", "FILE is a Parquet file; rename it to end in .parquet"),
    "no Parquet": ("a.parquet", GOOD, "FILE cannot be read as Parquet: "),
    "no Arrow": ("a.arrow", GOOD, "FILE cannot be read as Arrow: "),
    "cut gzip": ("a.jsonl.gz", gzip.compress(GOOD * 50)[:-9], "FILE cannot be decompressed: Compressed file ended before the end-of-stream marker was reached; copy it again"),
    "damaged gzip": ("a.jsonl.gz", gzip.compress(GOOD)[:-8] + b"\0" * 8, "FILE cannot be decompressed: CRC check failed"),
    "array cut between elements": ("a.json", b"[" + GOOD + b",", "FILE is not valid JSON after element 1: the file ends in the middle of the array; repair it there, or write one JSON object a line (.jsonl)"),
    "array cut inside an element": ("a.json", b"[" + GOOD + b', {"a": "b', "FILE is not valid JSON after element 1: Unterminated string starting at; repair it there, or write one JSON object a line (.jsonl)"),
    "array without a comma": ("a.json", b"[" + GOOD + GOOD + b"]", "FILE is not valid JSON after element 1: expected ',' or ']', found '{'; repair it there, or write one JSON object a line (.jsonl)"),
    "array with a comma too many": ("a.json", b"[" + GOOD + b",]", "FILE is not valid JSON after element 1: Expecting value; repair it there, or write one JSON object a line (.jsonl)"),
    "array and more": ("a.json", b"[" + GOOD + b"]\n{}", "FILE is not valid JSON after element 1: something follows the closing bracket; repair it there, or write one JSON object a line (.jsonl)"),
    "broken object": ("a.json", b'{\n"data": [\n{"a": 1,}\n]}', "FILE:3: not valid JSON: Expecting property name enclosed in double quotes; repair it there"),
    "object that is not UTF-8": ("a.json", b'{\n"data": "\xe9"}', "FILE: not valid JSON: invalid continuation byte; repair it there"),
    "two arrays to choose from": ("a.json", spread({"train": [{"a": 1}], "test": [{"a": 1}]}), "FILE holds several arrays of rows (train, test); write the one you mean to a file of its own"),
    "CSV that names a column twice": ("a.csv", b"question,answer,answer\nq,a,b\n", "FILE:1: the header names 'answer' twice; rename a column"),
    "CSV split by semicolons": ("a.csv", b"question;answer\nq;a\n", "FILE:1: the header is one column, 'question;answer', split by ';'; save it with commas as .csv, or with tabs as .tsv"),
    "CSV with a broken header": ("a.csv", b'"question,answer\n', "FILE:1: the header is not valid CSV: unexpected end of data"),
    "a suffix nobody knows": ("a.docx", GOOD, "cannot tell from its name what FILE holds; rename it; readable are .jsonl, .json, .csv, .tsv, .parquet, .arrow, and .gz or .zst of the first four"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_broken_file(case: str, tmp_path: Path) -> None:
    name, content, message = BROKEN_FILES[case]
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        open_dataset([str(file)], DataOptions(on_bad_row="skip"))
    expected = message.replace("FILE", str(file))
    # what pyarrow and zlib say after the colon is theirs to change
    theirs = message.endswith(": ") or "CRC" in message
    assert str(caught.value).startswith(expected) if theirs else str(caught.value) == expected


def test_a_line_of_50_megabytes(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    long = b'{"question": "q", "answer": "' + b"a" * 50_000_000 + b'"}\n'
    file.write_bytes(GOOD + long + b"x" * 50_000_000 + b"\n" + GOOD)
    rejected = tmp_path / "rejected.jsonl"
    options = DataOptions(on_bad_row="skip")
    with open_dataset([str(file)], options, rejected=rejected) as dataset:
        assert len(dataset) == 3
        assert len(dataset[1].messages[1]["content"]) == 50_000_000
    record = json.loads(rejected.read_text())
    assert (record["line"], record["reason"]) == (3, "invalid JSON: Expecting value (column 1)")
    assert record["text"] == "x" * 300 + " ..."


def test_zstandard(tmp_path: Path) -> None:
    import pyarrow

    file = tmp_path / "a.jsonl.zst"
    with pyarrow.CompressedOutputStream(str(file), "zstd") as stream:
        stream.write(GOOD * 1000)
    packed = file.read_bytes()
    file.write_bytes(packed + packed)
    with open_dataset([str(file)]) as dataset:
        assert len(dataset) == 2000
    file.write_bytes(packed[:-8])
    with pytest.raises(DataError, match="a.jsonl.zst cannot be read: Truncated compressed stream"):
        open_dataset([str(file)])
