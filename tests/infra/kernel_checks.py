"""Checks of the CPU reference kernels against plain definitions. Runs inside the engine's environment, without pytest.

Prints a JSON object: for each check its traceback, or null where it holds.
"""

import json
import time
import traceback
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from sglang_cpu_reference import attention, cache, kda, speculative

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def random_tokens(count, heads=4, key=16, value=16):
    tokens = kda.prepare(
        q=torch.randn(1, count, heads, key),
        k=torch.randn(1, count, heads, key),
        v=torch.randn(1, count, heads, value),
        gate=torch.randn(1, count, heads, key),
        beta=torch.randn(1, count, heads),
        A_log=torch.randn(heads),
        dt_bias=torch.randn(heads * key),
        lower_bound=None,
        scale=None,
    )
    return tokens, torch.randn(heads, value, key)


def step_by_step(state, tokens):
    outputs = []
    for t in range(len(tokens)):
        state, out = kda.delta_rule_step(state, tokens, t)
        outputs.append(out)
    return state, torch.stack(outputs)


def check_delta_rule_step_follows_its_definition():
    tokens, state = random_tokens(1)
    after, out = kda.delta_rule_step(state, tokens, 0)
    for head in range(4):
        q, k, v = tokens.q[0, head], tokens.k[0, head], tokens.v[0, head]
        expected = state[head] @ torch.diag(tokens.log_decay[0, head].exp())
        expected = expected + tokens.beta[0, head] * torch.outer(v - expected @ k, k)
        torch.testing.assert_close(after[head], expected, **CLOSE)
        torch.testing.assert_close(out[head], expected @ q, **CLOSE)


def check_chunks_equal_steps():
    for count in (1, 15, 16, 32, 33, 100):
        tokens, state = random_tokens(count)
        for got, expected in zip(kda.delta_rule(state, tokens), step_by_step(state, tokens), strict=True):
            torch.testing.assert_close(got, expected, **CLOSE)


def check_chunks_stand_strong_decay():
    tokens, state = random_tokens(64)
    tokens = replace(tokens, log_decay=tokens.log_decay * 1000)
    for got, expected in zip(kda.delta_rule(state, tokens), step_by_step(state, tokens), strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got, expected, **CLOSE)


def check_verification_keeps_the_state_after_each_draft():
    tokens, state = random_tokens(4)
    states, outputs = kda.delta_rule_tree(state, tokens, None)
    for count in range(1, 5):
        after, expected = step_by_step(state, tokens[:count])
        assert torch.equal(states[count - 1], after)
        assert torch.equal(outputs[:count], expected)


def check_a_branch_continues_its_parent():
    tokens, state = random_tokens(3)
    states, _ = kda.delta_rule_tree(state, tokens, [-1, 0, 0])
    root, _ = kda.delta_rule_step(state, tokens, 0)
    sibling, _ = kda.delta_rule_step(root, tokens, 2)
    assert torch.equal(states[2], sibling)


def check_convolution_of_a_prefill_equals_single_steps():
    width, kernel = 6, torch.randn(6, 4)
    x = torch.randn(width, 11)
    whole, steps = torch.randn(3, width, 3), torch.zeros(3, width, 3)
    starts, slots = torch.tensor([0, 4, 11]), torch.tensor([2, 0])
    steps[0] = whole[0]
    out = kda.causal_conv1d_fn(
        x, kernel, None, whole, starts, cache_indices=slots, has_initial_state=torch.tensor([False, True])
    )
    for slot, span in ((2, range(4)), (0, range(4, 11))):
        for t in span:
            one = kda.causal_conv1d_update(
                x[:, t].unsqueeze(0), steps, kernel, activation="silu", conv_state_indices=torch.tensor([slot])
            )
            torch.testing.assert_close(one[0], out[:, t], **CLOSE)
    torch.testing.assert_close(steps[[2, 0]], whole[[2, 0]], **CLOSE)


def check_causal_attention_equals_torch():
    for n, m, heads, kv_heads in ((1, 1, 4, 4), (7, 7, 4, 2), (5, 300, 4, 1), (600, 700, 2, 2)):
        q, k, v = torch.randn(n, heads, 24), torch.randn(m, kv_heads, 24), torch.randn(m, kv_heads, 16)
        mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        expected = F.scaled_dot_product_attention(
            q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), attn_mask=mask, scale=0.2, enable_gqa=True
        )
        torch.testing.assert_close(attention.attend_causal(q, k, v, 0.2), expected.transpose(0, 1), **CLOSE)


def check_prefill_reads_the_cached_prefix():
    pool_k, pool_v = torch.randn(64, 1, 8), torch.randn(64, 1, 8)
    table = torch.randperm(64)[:40].view(1, 40)
    q, k, v = torch.randn(12, 2, 8), torch.randn(12, 1, 8), torch.randn(12, 1, 8)
    pool_k[table[0, 28:]], pool_v[table[0, 28:]] = k, v
    out = torch.empty(12, 2, 8)
    one = [torch.tensor([x]) for x in (0, 40, 12, 0)]
    torch.ops.sgl_kernel.extend_attention_cpu(
        q, k, v, out, pool_k, pool_v, 1.0, 1.0, table, *one, 12, 0.3, 0.0, False, 0, None, None, None, True
    )
    torch.testing.assert_close(out, attention.attend_causal(q, pool_k[table[0]], pool_v[table[0]], 0.3), **CLOSE)
    last = torch.empty(1, 2, 8)
    torch.ops.sgl_kernel.decode_attention_cpu(
        q[-1:], pool_k, pool_v, 1.0, 1.0, last, k[-1:], v[-1:], table[0, 39:], torch.empty(0), table,
        torch.tensor([0]), torch.tensor([40]), 0.3, 0.0, False, 0, None, None,
    )  # fmt: skip
    torch.testing.assert_close(last[0], out[-1], **CLOSE)


def check_prefill_is_quick():
    tokens, state = random_tokens(1500)
    q = torch.randn(1500, 4, 24)
    started = time.process_time()
    kda.delta_rule(state, tokens)
    attention.attend_causal(q, q, q, 0.2)
    assert time.process_time() - started < 2


def verify(drafts, chosen, child, sibling):
    n = len(drafts)
    predicts, path, accepted = torch.full((n,), -1), torch.full((1, 4), -1), torch.zeros(1, dtype=torch.long)
    index = torch.arange(n).view(1, n)
    rows = (torch.tensor([row]) for row in (drafts, child, sibling))
    candidates, child_row, sibling_row = rows
    speculative.verify_tree_greedy_cpu(
        predicts, path, accepted, candidates, index, child_row, sibling_row, torch.tensor([chosen])
    )
    return predicts.tolist(), path[0].tolist(), int(accepted)


def check_verification_accepts_up_to_the_first_wrong_draft():
    chain, alone = [1, 2, 3, -1], [-1] * 4
    assert verify([9, 5, 6, 7], [5, 6, 8, 0], chain, alone) == ([5, 6, 8, -1], [0, 1, 2, -1], 2)
    assert verify([9, 5, 6, 7], [5, 6, 7, 4], chain, alone) == ([5, 6, 7, 4], [0, 1, 2, 3], 3)
    assert verify([9, 5, 6, 7], [4, 6, 7, 4], chain, alone) == ([4, -1, -1, -1], [0, -1, -1, -1], 0)


def check_verification_tries_siblings():
    # Node 0 has children 1 and 2; node 2 has child 3.
    child, sibling = [1, -1, 3, -1], [-1, 2, -1, -1]
    assert verify([9, 5, 6, 7], [6, 0, 7, 3], child, sibling) == ([6, -1, 7, 3], [0, 2, 3, -1], 2)


def check_tree_of_a_chain_and_its_reconstruction():
    def empty(dtype=torch.long):
        return torch.empty(1, 4, dtype=dtype)

    built = [torch.empty(16, dtype=torch.bool), empty(), empty(), empty(), empty()]
    speculative.build_tree_kernel_efficient_cpu(
        torch.tensor([[-1, 0, 1]]), torch.tensor([[0, 1, 2]]), torch.tensor([10]), *built, 1, 3, 4, 1
    )
    mask, positions, index, child, sibling = built
    assert mask.view(4, 4).equal(torch.ones(4, 4, dtype=torch.bool).tril())
    assert positions.tolist() == [[10, 11, 12, 13]]
    assert index.tolist() == [[0, 1, 2, 3]]
    assert child.tolist() == [[1, 2, 3, -1]]
    assert sibling.tolist() == [[-1, -1, -1, -1]]
    again = [empty() for _ in range(4)]
    speculative.reconstruct_indices_from_tree_mask(mask, torch.tensor([10]), *again, 1, 4)
    assert all(a.equal(b) for a, b in zip(again, built[1:], strict=True))


def check_cached_rows_move_even_if_they_overlap():
    rows = torch.arange(12.0).view(6, 2)
    pointers, sizes = torch.tensor([rows.data_ptr()]), torch.tensor([8])
    cache.copy_all_layer_kv_cache_cpu(pointers, sizes, torch.tensor([1, 2]), torch.tensor([0, 1]))
    assert rows[:4].tolist() == [[0, 1], [0, 1], [2, 3], [6, 7]]


def check_commit_copies_the_accepted_step():
    pool, drafts = torch.zeros(2, 3, 5), torch.randn(2, 2, 4, 5)
    kda.commit_states(pool, drafts, torch.tensor([2, 1]), torch.tensor([3, -1]))
    assert pool[:, 2].equal(drafts[:, 0, 3])
    assert not pool[:, :2].any()


if __name__ == "__main__":
    results = {}
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            torch.manual_seed(0)
            try:
                check()
                results[name] = None
            except Exception:
                results[name] = traceback.format_exc()
    print(json.dumps(results))
