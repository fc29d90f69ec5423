# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel decoder on two ranks, captured with its collectives."""
from ranks import run_ranks


def test_two_ranks():
    results = run_ranks(
        "rank_decoder",
        [
            "replays_say_what_one_process_with_all_parts_says",
            "calls_say_what_replays_say",
            "one_rank_that_does_not_cut_says_nearly_the_same",
        ],
    )
    assert not any(results.values()), "\n".join(results.values())
