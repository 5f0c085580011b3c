"""One budget is spent over all tables where it wins most."""

from __future__ import annotations

from icekit.compact.candidates import candidates
from icekit.compact.model import Policy
from icekit.compact.plan import plan
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds
from icekit.schedule.act import leaves_for_budget
from icekit.schedule.policy import PassBudget
from icekit.schedule.study import Offer, Share, offers, share_out
from tests.factories import FIRST_DAY, MIB, file_group, partition, table_facts

CHEAP, DEAR = Offer(10, 100, 5), Offer(10, 1000, 50)


def test_without_a_limit_every_table_has_its_plan() -> None:
    assert share_out({"a": [CHEAP], "b": []}, PassBudget(seconds=5)) == {"a": Share(), "b": Share()}


def test_the_best_win_per_byte_is_covered_first_whichever_table_has_it() -> None:
    shares = share_out({"a": [DEAR, CHEAP], "b": [CHEAP]}, PassBudget(bytes=250))
    assert shares == {"a": Share(100, None, cut=True), "b": Share(100, None)}


def test_what_is_too_expensive_is_passed_over_for_what_is_not() -> None:
    shares = share_out({"a": [Offer(100, 200, 1)], "b": [Offer(1, 50, 1)]}, PassBudget(bytes=100))
    assert shares["a"].is_nothing
    assert shares["b"] == Share(50, None)


def test_files_are_a_limit_of_their_own() -> None:
    shares = share_out({"a": [CHEAP, CHEAP]}, PassBudget(files=9))
    assert shares == {"a": Share(None, 5, cut=True)}


def test_offers_are_the_partitions_that_a_plan_has_taken_up() -> None:
    facts = table_facts(groups=tuple(file_group(*[MIB] * 50, of=partition(FIRST_DAY + day)) for day in range(4)))
    findings, limits = diagnose(facts), Thresholds()
    found = candidates(facts, findings, Policy(), limits)
    whole, half = plan(facts, findings), plan(facts, findings, Policy(budget_bytes=100 * MIB))
    assert len(offers(whole, found)) == 4
    assert len(offers(half, found)) == 2
    assert sum(o.bytes_in for o in offers(half, found)) == half.prediction.bytes_in


def test_a_plan_tells_whether_a_larger_budget_would_take_more() -> None:
    facts = table_facts(groups=tuple(file_group(*[MIB] * 50, of=partition(FIRST_DAY + day)) for day in range(4)))
    findings = diagnose(facts)
    assert leaves_for_budget(plan(facts, findings, Policy(budget_bytes=100 * MIB)))
    assert not leaves_for_budget(plan(facts, findings))
