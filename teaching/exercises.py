"""Exercises that check themselves: a question, what is true, and a hint for an answer that is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any


@dataclass(frozen=True)
class Question:
    """One exercise.

    Attributes:
        text: what is asked.
        truth: computes the answer, or says of a given one whether it is right (``judges``).
        hint: shown where an answer is wrong.
        why: shown with the answer.
        judges: ``truth`` takes the answer and returns whether it will do.
        example: an answer that will do, where ``judges``.
        tolerance: relative, of numbers.
    """

    text: str
    truth: Callable[..., Any]
    hint: str = ""
    why: str = ""
    judges: bool = False
    example: Callable[[], Any] | None = None
    tolerance: float = 1e-3

    def holds(self, answer: Any) -> bool:
        """Is it right?"""
        if self.judges:
            return bool(self.truth(answer))
        expected = self.truth()
        numbers = (int, float)
        if isinstance(expected, numbers) and isinstance(answer, numbers):
            return isclose(answer, expected, rel_tol=self.tolerance, abs_tol=1e-9)
        if isinstance(expected, (set, frozenset)):
            return set(answer) == set(expected)
        return answer == expected

    def solution(self) -> Any:
        """An answer that is right."""
        return self.truth() if self.example is None else self.example()


class Exercises:
    """Those of a notebook: ``ask(1, your answer)`` says whether it is right, ``ask.reveal()`` what is."""

    def __init__(self, questions: Sequence[Question]) -> None:
        """Numbered from 1."""
        self.questions = tuple(questions)

    def __call__(self, number: int, answer: Any = ...) -> None:
        """Print the question, and of an answer whether it is right.

        Args:
            number: of the question.
            answer: yours; the dots stand for none.

        Raises:
            ValueError: there is no such question.
        """
        if not isinstance(number, int) or not 1 <= number <= len(self.questions):
            raise ValueError(f"exercise {number!r}; there are 1 to {len(self.questions)}")
        question = self.questions[number - 1]
        print(f"{number}. {question.text}")
        if answer is ...:
            print("   (put your answer in place of the dots)")
        elif question.holds(answer):
            print("   Right.", question.why)
        else:
            print("   Not yet.", question.hint)

    def reveal(self) -> None:
        """Print all answers, each after it was checked like yours."""
        for number, question in enumerate(self.questions, start=1):
            answer = question.solution()
            assert question.holds(answer), f"the answer to exercise {number} is {answer!r}, which its own check refuses"
            print(f"{number}. {_shown(answer)}. {question.why}".rstrip())
        print(f"All {len(self.questions)} answers hold.")


def _shown(answer: Any) -> str:
    if isinstance(answer, float):
        return f"{answer:g}"
    if isinstance(answer, (set, frozenset)):
        return ", ".join(sorted(map(str, answer)))
    return str(answer)
