"""A sweep in simulated time: the farm's own schedule, with slots that take the seconds they are told to."""

import heapq
import itertools
from collections import Counter

from farm.driver.schedule import Feed, Finish, Schedule, Start


class Simulation:
    """Runs a schedule to its end by its events, in order of their simulated time.

    Args:
        answer_of: cell -> tokens of its answer, and the seconds that it takes.
        start_s: seconds of an engine start.
        trouble: a random generator; with it, starts fail, slots die, come back and come late.
    """

    def __init__(self, schedule: Schedule, answer_of, slots=(), start_s=10.0, trouble=None):
        self.schedule, self.answer_of, self.start_s, self.trouble = schedule, answer_of, start_s, trouble
        self.now_s = self.end_s = self.cells_s = self.starts_s = 0.0
        self.starts = 0
        self.requested, self.recorded, self.predictions = Counter(), Counter(), []
        self.events, self.number = [], itertools.count()
        self.life = Counter()
        self.queue, self.running, self.finishing = {}, {}, set()
        self.known = set()
        self.slots = len(slots) or len(schedule.present())
        for index, slot in enumerate(slots):
            if trouble and index and trouble.random() < 0.3:
                self.at(trouble.uniform(0, 200), self.join, slot)
            else:
                self.schedule.joined(slot)

    def at(self, after_s, what, *arguments):
        heapq.heappush(self.events, (self.now_s + after_s, next(self.number), what, arguments))

    def run(self):
        self.orders()
        while self.events:
            self.now_s, _, what, arguments = heapq.heappop(self.events)
            self.schedule.refresh(self.now_s)
            what(*arguments)
            self.orders()
        return self

    @property
    def efficiency(self):
        """Slot-seconds in requests and in each slot's first start of each variant, over slots x makespan."""
        return (self.cells_s + self.starts_s) / (self.slots * self.end_s)

    def orders(self):
        self.schedule.refresh(self.now_s)
        for slot in self.schedule.present():
            match self.schedule.order(slot, self.now_s):
                case Start(variant, _, cells, _):
                    self.queue[slot] = list(cells)
                    self.finishing.discard(slot)
                    self.starts += 1
                    self.at(self.start_s, self.ready, slot, self.life[slot], variant)
                case Feed(cells, _):
                    self.queue[slot] += cells
                    self.work(slot)
                case Finish():
                    self.finishing.add(slot)
                    self.at(0.0, self.end, slot, self.life[slot])

    def ready(self, slot, life, variant):
        if life != self.life[slot]:
            return
        if self.trouble and self.trouble.random() < 0.15:
            self.schedule.failed(slot, not_retryable=False)
            self.schedule._excluded.clear()  # bad luck, not the variant's fault: it may be tried for ever
            self.end(slot, life)
            return
        if (slot, variant) not in self.known:
            self.known.add((slot, variant))
            self.starts_s += self.start_s
        self.running[slot] = set()
        self.schedule.started(slot, self.start_s)
        self.work(slot)

    def work(self, slot):
        if slot not in self.running:
            return  # the engine still starts
        while self.queue[slot] and len(self.running[slot]) < self.schedule.concurrency:
            cell = self.queue[slot].pop(0)
            self.running[slot].add(cell)
            self.requested[cell] += 1
            tokens, took_s = self.answer_of(cell)
            if self.trouble and self.trouble.random() < 0.02 and len(self.schedule.present()) > 1:
                self.at(took_s / 2, self.die, slot, self.life[slot])
            self.at(took_s, self.answer, slot, self.life[slot], cell, tokens, took_s)

    def answer(self, slot, life, cell, tokens, took_s):
        if life != self.life[slot]:
            return
        self.cells_s += took_s
        self.end_s = self.now_s
        self.recorded[cell] += 1
        self.running[slot].discard(cell)
        self.schedule.record(slot, cell, tokens=tokens, took_s=took_s, failed=False)
        self.predictions.append((self.now_s, self.schedule.expected_length_s))
        self.work(slot)

    def end(self, slot, life):
        if life == self.life[slot]:
            self.life[slot] += 1
            self.running.pop(slot, None)
            self.schedule.ended(slot)

    def die(self, slot, life):
        if life != self.life[slot] or len(self.schedule.present()) < 2:
            return
        self.life[slot] += 1
        self.running.pop(slot, None)
        wait = self.trouble.random() < 0.5
        self.schedule.lost(slot, wait=wait)
        self.at(self.trouble.uniform(1, 100), self.join, slot)

    def join(self, slot):
        if slot not in self.schedule.present():
            self.schedule.joined(slot)
