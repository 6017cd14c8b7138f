"""What all workloads have in common: strict settings, sampling parameters, and what a kind of workload can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from farm.types import Item

MAX_TOKENS: Final = 1 << 20  # of one prompt or answer


class Strict(BaseModel):
    """Base of all that a user writes: an unknown field is an error, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(Strict):
    """Sampling parameters, by SGLang's names."""

    temperature: float = Field(ge=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    max_new_tokens: int = Field(ge=1, le=MAX_TOKENS)


def laid_over(default: Sampling) -> BeforeValidator:
    """Fields that are not given keep the workload's default: who shortens answers does not leave the protocol."""
    return BeforeValidator(lambda given: default.model_dump() | given if isinstance(given, dict) else given)


class WorkloadBase(Strict):
    """Settings of every workload. A kind adds its own, and says what its items are."""

    published_answer_s: ClassVar[float | None] = None  # one answer at the published baseline's speed on a DGX Spark

    repeats: int = Field(default=1, ge=1, le=1000)
    seed: int = Field(default=42, ge=0, lt=2**31)
    prefix_cache: Literal["flush", "keep"] = Field(
        default="flush", description="flush: the engine's prefix cache is emptied before each measured request"
    )

    def items(self) -> list[Item]:
        """What is asked, in its order.

        Raises:
            InputError: beginning with the field to change.
        """
        raise NotImplementedError

    @property
    def title(self) -> str:
        """What is asked, in a few words."""
        raise NotImplementedError

    @property
    def source_name(self) -> str:
        """Where the items come from, without a path of this machine."""
        raise NotImplementedError

    def beside(self, folder: Path) -> Self:
        """The same with paths that are relative to `folder`, the one of the sweep's own file, made absolute."""
        return self
