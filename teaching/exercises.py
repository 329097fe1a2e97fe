"""Exercises that check themselves: a question, what is true, and a hint for an answer that is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import isclose, isfinite
from numbers import Real
from typing import Any

_UNREADABLE = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError)
"""What comes of reading an answer that is not of the kind that was asked for: anything may be given."""


class NotAnAnswerError(ValueError):
    """What was given is not of the kind that was asked for; the message is the hint."""


def number(answer: Any) -> float:
    """A number, also of NumPy or PyTorch.

    Raises:
        NotAnAnswerError: it is none, or not finite.
    """
    try:
        plain = answer.item() if getattr(answer, "ndim", None) == 0 else answer
        found = float(plain) if isinstance(plain, Real) and not isinstance(plain, bool) else None
    except _UNREADABLE:
        found = None
    if found is None or not isfinite(found):
        raise NotAnAnswerError("A number is asked for" + (", without quotes." if isinstance(answer, str) else "."))
    return found


def word(answer: Any) -> str:
    """Text, without what is no difference: case, and space around or between words.

    Raises:
        NotAnAnswerError: it is none.
    """
    if not isinstance(answer, str):
        raise NotAnAnswerError("A name or some words are asked for, in quotes.")
    return " ".join(answer.split()).casefold()


def one_of(answer: Any, known: Collection[str], *, kind: str = "name") -> str:
    """That of the names that is meant.

    Args:
        answer: text.
        known: all names.
        kind: what they are names of.

    Raises:
        NotAnAnswerError: there is none of that name.
    """
    spelled = {word(x): x for x in known}
    if (found := spelled.get(word(answer))) is None:
        raise NotAnAnswerError(f"There is no {kind} {answer}; there are {', '.join(known)}.")
    return found


def some_of(answer: Any, known: Collection[str], *, kind: str = "name") -> list[str]:
    """Those of the names that are meant; one may stand without a list.

    Raises:
        NotAnAnswerError: it is no list of names, or there is none of such a name.
    """
    several = [answer] if isinstance(answer, str) else answer
    if not isinstance(several, (list, tuple, set, frozenset)):
        raise NotAnAnswerError("A list of names is asked for.")
    return [one_of(x, known, kind=kind) for x in several]


@dataclass(frozen=True)
class Question:
    """One exercise.

    Attributes:
        text: what is asked.
        truth: computes the answer, or says of a given one whether it is right (``judges``).
        hint: shown where an answer is wrong.
        why: shown with the answer.
        judges: ``truth`` takes the answer and returns whether it will do, or raises ``NotAnAnswerError`` with a hint.
        example: an answer that will do, where ``judges``.
        tolerance: relative, of numbers.
        digits: behind the point, to which a number is asked for; what is given with more is rounded. ``truth`` is not
            rounded itself.
    """

    text: str
    truth: Callable[..., Any]
    hint: str = ""
    why: str = ""
    judges: bool = False
    example: Callable[[], Any] | None = None
    tolerance: float = 1e-3
    digits: int | None = None

    def wrong(self, answer: Any) -> str | None:
        """A hint; None if it is right."""
        try:
            return None if self._holds(answer) else self.hint
        except NotAnAnswerError as error:
            return f"{error} {self.hint}".rstrip()
        except _UNREADABLE:
            return self.hint

    def _holds(self, answer: Any) -> bool:
        if self.judges:
            return bool(self.truth(answer))
        expected = self.truth()
        if isinstance(expected, Real):
            given = number(answer)
            if isclose(given, number(expected), rel_tol=self.tolerance, abs_tol=1e-9):
                return True
            # Half a unit of the last digit: either neighbour will do where the truth lies between two.
            return self.digits is not None and (
                abs(round(given, self.digits) - number(expected)) <= (0.5 + 1e-9) * 10**-self.digits
            )
        if isinstance(expected, str):
            return word(answer) == word(expected)
        if isinstance(expected, (set, frozenset)):
            return set(some_of(answer, expected)) == expected
        return type(answer) is type(expected) and bool(answer == expected)

    def solution(self) -> Any:
        """An answer that is right."""
        if self.example is not None:
            return self.example()
        return self.truth() if self.digits is None else round(self.truth(), self.digits)


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
        elif (hint := question.wrong(answer)) is None:
            print("   Right.", question.why)
        else:
            print("   Not yet.", hint)

    def reveal(self) -> None:
        """Print all answers, each after it was checked like yours."""
        for number, question in enumerate(self.questions, start=1):
            answer = question.solution()
            refused = question.wrong(answer) is not None
            assert not refused, f"the answer to exercise {number} is {answer!r}, which its own check refuses"
            print(f"{number}. {_shown(answer)}. {question.why}".rstrip())
        print(f"All {len(self.questions)} answers hold.")


def _shown(answer: Any) -> str:
    if isinstance(answer, float):
        return f"{answer:g}"
    if isinstance(answer, (set, frozenset)):
        return ", ".join(sorted(map(str, answer)))
    return str(answer)
