"""What a check-up found: the same words for an installation, a recording and a running system."""

from __future__ import annotations

from dataclasses import dataclass

GOOD, NOTE, WRONG = "good", "note", "wrong"


@dataclass(frozen=True)
class Finding:
    """status: good, note (works, but know it) or wrong; remedy: what to do about it"""

    subject: str
    status: str
    text: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The text with its remedy, for where there is one line for both."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text
