# ruff: noqa: RUF001 - foreign scripts and their signs are what is tested
"""Degenerate text is found, and text that only looks like it is left alone."""

from __future__ import annotations

import base64
import hashlib
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglforge.smoke.degeneration import degeneration

PROSE = (
    "The river rises in the hills behind the town and runs west for ninety miles before it meets the sea. In spring "
    "the water is high, and the ferry that crosses at the old mill waits for days until the current slows down."
)
PYTHON = """class Job:
    def __init__(self, name, size, owner, queue, deadline):
        self.name = name
        self.size = size
        self.owner = owner
        self.queue = queue
        self.deadline = deadline

    def run(self):
        for step in self.queue:
            if step.ready:
                step.start()
            else:
                step.wait()
        return {"name": self.name, "done": True}
"""
TABLE = "| name | size | kind |\n|------|------|------|\n" + "\n".join(
    f"| item {number} | {number * 7} | {'file' if number % 2 else 'folder'} |" for number in range(24)
)
YES_NO = "| a | b | c | d |\n|---|---|---|---|\n" + "\n".join(
    f"| {' | '.join('yes' if byte > 99 else 'no' for byte in hashlib.sha256(bytes([row])).digest()[:4])} |"
    for row in range(60)
)
RECORDS = "[" + ", ".join(f'{{"id": {n}, "name": "user{n}", "active": true}}' for n in range(60)) + "]"
JAPANESE = "東京は日本の首都であり、世界でも最大級の都市です。春には桜が咲き、多くの人が公園に集まります。"
CHINESE = "北京是中国的首都，有三千多年的历史。故宫位于市中心，每年有很多游客前来参观。今天天气很好。"
KOREAN = "서울은 대한민국의 수도이며 한강이 도시를 가로질러 흐른다. Python으로 만든 프로그램을 실행한다."
THAI = "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย มีประชากรมากที่สุดและเป็นศูนย์กลางทางเศรษฐกิจของประเทศ"
RUSSIAN = "Москва является столицей России. Город стоит на реке Москве и известен своими театрами и музеями."
POEM = (
    "O come, come away, the morning is bright,\nO come, come away, we have done with the night.\n"
    "The road lies before us, the hills are in view,\nO come, come away, there is walking to do.\n\n"
    "O come, come away, the river runs clear,\nO come, come away, for the noonday is near.\n"
    "Row, row, row, row, and the water will sing,\nHallelujah, hallelujah, hallelujah!"
)
TREE = "    *\n   ***\n  *****\n *******\n*********\n    |\n    |"
BOX = "+" + "-" * 70 + "+\n|" + " " * 70 + "|\n|  hello" + " " * 63 + "|\n+" + "-" * 70 + "+"
NESTED = '{"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": [[[[[[1]]]]]]}}}}}}}}'
GREETINGS = "English: hello\nRussian: привет\nChinese: 你好\nKorean: 안녕하세요\nThai: สวัสดี\nGreek: γειά"

HEALTHY = {
    "prose": PROSE,
    "python": PYTHON,
    "table": TABLE,
    "yes-no": YES_NO,
    "records": RECORDS,
    "japanese": JAPANESE,
    "chinese": CHINESE,
    "korean": KOREAN,
    "thai": THAI,
    "russian": RUSSIAN,
    "poem": POEM,
    "tree": TREE,
    "box": BOX,
    "nested": NESTED,
    "greetings": GREETINGS,
    "greetings-inline": "Hello — Bonjour — Привет — 你好 — 안녕하세요 — สวัสดี",
    "quotes-two": 'He said "Доброе утро" and she answered "おはようございます", and both laughed about it.',
    "mixed-korean": "大韓民國은 민주공화국이다. 모든 국민은 법 앞에 평등하다.",
    "chinese-code": "使用Python编写的程序可以调用API并返回JSON格式的数据。",
    "greek-units": "The beam is 5 μm wide and the angle α is smaller than β, so Δx is about 3 Å.",
    "list": "\n".join(f"- {word} is on the list" for word in ("bread", "milk", "tea", "rice", "salt", "oil")),
    "numbers": ", ".join(str(number) for number in range(1, 200)),
    "zeros": "[" + ", ".join(["0"] * 20),
    "bits": "1010101010101010101010101010101010101010",
    "fraction": "1/3 is 0.333333333333333333333333 and 1/7 is 0.142857142857142857142857142857.",
    "million": "A googol starts with 1 and goes on with zeros: 1" + "0" * 40,
    "sha256": hashlib.sha256(b"a").hexdigest(),
    "zero-hash": "0x" + "0" * 64,
    "base64": base64.b64encode(bytes(range(256))).decode(),
    "base64-zeros": base64.b64encode(b"key" + bytes(45)).decode(),
    "rule": "-----",
    "rules": f"Title\n{'=' * 79}\n{PROSE}\n\n{'-' * 79}",
    "rule-at-end": PROSE + "\n" + "-" * 120,
    "yes": "Yes!!!",
    "shout": "We won, we won, we won!!!! What a day!!!!!!",
    "four": "4",
    "word": "Paris",
    "dots": "Well...",
    "laugh": "Ha ha ha ha ha, that is a good one.",
    "haha": "哈哈哈哈哈哈",
    "emoji": "Done 🎉🎉🎉🎉🎉",
    "sentence-twice": "The sky is blue today. The sky is blue today.",
    "html": "<ul><li>a</li><li>b</li><li>c</li></ul></div></div></div></div></body></html>",
    "lisp": "(defun f (x) (if (> x 1) (* x (f (- x 1))) 1))))))))",
    "csv": "\n".join(f"{year},{year * 3 % 17},{year * 5 % 13},0,0" for year in range(1990, 2026)),
    "escape-codes": "\x1b[31merror\x1b[0m: no such file, look into \x1b[1m/etc/hosts\x1b[0m for the right name",
    "cut-letter": PROSE + "\ufffd",
    "about-replacement": "The character \ufffd stands for bytes that could not be decoded.",
    "powers": "\n".join(f"2 to the power of {n} is {2**n}" for n in range(20)),
    "tests": "\n".join(f"    assert add({n}, {n + 1}) == {2 * n + 1}" for n in range(30)),
    "latex": r"\frac{a}{b} + \frac{c}{d} = \frac{ad + bc}{bd}, \quad \text{where } b, d \neq 0",
}
BROKEN = {
    "plus": ("+" * 24, "run"),
    "exclamation": ("!" * 16, "run"),
    "exclamation-long": ("!" * 300, "run"),
    "tag-quoted": (r"\n\n</\n\n</\n\n</", "cycle"),
    "tag": ("\n\n</" * 3, "cycle"),
    "salad": ("的的и한 the the ก", "script-salad"),
    "salad-long": ("ainless教练и Конкурс한국hecyウェアก的", "script-salad"),
    "empty": ("", "empty"),
    "blank": (" \n\n ", "empty"),
    "letters": ("a" * 64, "run"),
    "han": ("的" * 40, "run"),
    "words": ("the " * 40, "cycle"),
    "is-is": ("The capital of France" + " is" * 60, "cycle"),
    "sentence-loop": ("I am not sure what you mean by that. " * 12, "cycle"),
    "sentence-loop-later": (PROSE + " " + "The answer is in the book. " * 20, "cycle"),
    "marks-later": ("The answer is simple" + "!" * 40, "run"),
    "nbsp": ("nbsp;" * 40, "cycle"),
    "paragraph-loop": (PROSE * 6, "cycle"),
    "dashes": ("-" * 400, "run"),
    "replacement": ("\ufffd\ufffda\ufffd\ufffd b\ufffd\ufffd c", "unprintable"),
    "controls": ("\x00\x01\x02 the \x03\x04", "unprintable"),
    "shuffle": (
        " ".join(("the cat sat on the mat", "the dog sat on the mat")[n * n * 7 % 61 % 2] for n in range(60)),
        "few-phrases",
    ),
    "zeros": ("0, " * 200, "cycle"),
    "json-loop": ('{"a": [' + "[" * 60, "run"),
}
SUSPICIOUS = {
    "sentence-four-times": "The capital of France is Paris. " * 4,
    "greetings-in-a-row": "Hello Bonjour Привет 你好 안녕하세요 สวัสดี",
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_healthy_text_is_left_alone(text: str) -> None:
    assert degeneration(text) is None
    assert degeneration(text, finish="length") is None


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_degenerate_text_is_found(text: str, reason: str) -> None:
    found = degeneration(text)
    assert found is not None
    assert (found.reason, found.severity) == (reason, "broken")


@pytest.mark.parametrize("text", SUSPICIOUS.values(), ids=SUSPICIOUS)
def test_what_a_small_model_may_do_is_only_suspicious(text: str) -> None:
    found = degeneration(text)
    assert found is not None
    assert not found.broken


def test_a_repetition_is_counted() -> None:
    found = degeneration("The answer: " + "no way, " * 30)
    assert found is not None
    assert "repeated 30 times at the end" in found.message


@pytest.mark.parametrize(("text", "broken"), [("!!!!", True), ("-----", False), ("...", False)])
def test_a_few_signs_to_the_limit_are_no_answer(text: str, broken: bool) -> None:
    found = degeneration(text, finish="length")
    assert (found is not None and found.broken) is broken
    assert degeneration(text, finish="stop") is None


def test_blank_space_up_to_the_limit_is_found() -> None:
    assert degeneration("{" + "\n" * 80, at_limit=True) is not None
    assert degeneration("{}" + "\n" * 80) is None


def test_one_token_to_the_end_is_found_whatever_it_is_written_as() -> None:
    found = degeneration(PROSE, token_ids=(5, 6, *[0] * 40))
    assert found is not None
    assert found.message == "token 0 is repeated 40 times to the end"
    assert degeneration(PROSE, token_ids=tuple(range(60))) is None


def test_a_few_tokens_in_turn_are_found() -> None:
    assert degeneration(PROSE, token_ids=(9, 8, *[1, 2, 3] * 20)) is not None


TEXTS = st.sampled_from([PROSE, PYTHON, TABLE, RECORDS, JAPANESE, CHINESE, KOREAN, THAI, RUSSIAN, POEM, BOX, GREETINGS])
UNITS = st.text(alphabet=string.ascii_letters + string.punctuation + " äß的и한", min_size=1, max_size=40)


@given(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
def test_healthy_texts_stay_healthy_together(texts: list[str]) -> None:
    assert degeneration("\n\n".join(texts)) is None


@given(UNITS, st.sampled_from(["", PROSE, PYTHON, JAPANESE]))
def test_any_cycle_is_found_when_it_goes_on(unit: str, before: str) -> None:
    assume(unit.strip())
    times = max(40, 800 // len(unit))
    found = degeneration(before + unit * times)
    assert found is not None
    assert found.broken


@given(st.sampled_from([*HEALTHY.values(), *(text for text, _ in BROKEN.values())]), st.text(" \n\t", max_size=20))
def test_space_around_a_text_does_not_matter(text: str, space: str) -> None:
    assume(text.strip())
    assert degeneration(space + text + space) == degeneration(text.strip())


@given(st.text(max_size=300), st.lists(st.integers(0, 3), max_size=60), st.sampled_from(["", "stop", "length"]))
def test_any_text_is_judged_and_the_same_way_twice(text: str, ids: list[int], finish: str) -> None:
    first = degeneration(text, token_ids=ids, finish=finish)
    assert first == degeneration(text, token_ids=ids, finish=finish)
    assert first is None or first.message


def test_a_huge_text_takes_no_long_time() -> None:
    assert degeneration(PROSE + "ab" * 1_000_000) is not None
