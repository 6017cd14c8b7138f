"""Exact identities that say why one figure became another. No estimate, no model: the parts make up the whole."""

from __future__ import annotations

from typing import NamedTuple


class Means(NamedTuple):
    """Means per request of one variant, in seconds and tokens."""

    latency_s: float
    ttft_s: float
    decode_s: float
    steps: float  # completion tokens after the first

    @property
    def tpot_s(self) -> float:
        """Token-weighted seconds per token."""
        return self.decode_s / self.steps if self.steps else 0.0


class LatencyParts(NamedTuple):
    """Seconds of mean latency that each cause added (negative: saved). They sum to `total`."""

    ttft: float
    output_length: float
    per_token: float
    other: float
    total: float


def latency_parts(variant: Means, against: Means) -> LatencyParts:
    """Split a change of mean latency into time to first token, output length, and seconds per token.

    Mean decode time is steps x seconds per token, and the change of a product splits exactly into the change of each
    factor times the mean of the other: Shapley (1953) for two factors, so neither order of change is preferred.
    `other` is latency that is neither: zero where latency is time to first token plus decode.
    """
    length = (variant.steps - against.steps) * (variant.tpot_s + against.tpot_s) / 2
    speed = (variant.tpot_s - against.tpot_s) * (variant.steps + against.steps) / 2
    ttft = variant.ttft_s - against.ttft_s
    total = variant.latency_s - against.latency_s
    decode = variant.decode_s - against.decode_s
    return LatencyParts(ttft, length, speed, total - ttft - decode, total)


class SpeedParts(NamedTuple):
    """throughput ratio = accept_length_ratio / round_cost_ratio."""

    throughput_ratio: float
    accept_length_ratio: float
    round_cost_ratio: float
    break_even_accept_length: float


def speed_parts(tpot: float, accept_length: float, tpot_against: float, accept_length_against: float) -> SpeedParts:
    """Split a throughput ratio into tokens per round and cost per round; without speculation a round is one token.

    The cost of a round is tpot x accept length. Speculation breaks even at the accept length that equals the cost of
    its round in plain steps: Leviathan, Kalman & Matias (2023), "Fast inference from transformers via speculative
    decoding".
    """
    lengths = accept_length / accept_length_against
    cost = (tpot * accept_length) / (tpot_against * accept_length_against)
    return SpeedParts(tpot_against / tpot, lengths, cost, cost * accept_length_against)


class Payback(NamedTuple):
    """After how much use a slower start has paid for itself; None: it never does, 0: at once."""

    requests: float | None
    tokens: float | None


def payback(extra_start_s: float, saved_per_request_s: float, saved_per_token_s: float) -> Payback:
    """Use that makes up for extra seconds of start-up, in requests and in output tokens."""
    return Payback(_uses(extra_start_s, saved_per_request_s), _uses(extra_start_s, saved_per_token_s))


def _uses(cost: float, gain: float) -> float | None:
    if cost <= 0:
        return 0.0 if gain > 0 else None
    return cost / gain if gain > 0 else None
