"""What a caching allocator takes of a device beyond what is alive: learnt from steps, left to it by plans. Pure.

A card has to give what torch's allocator reserves, not what is allocated: blocks that were freed and fit nothing stay
reserved. How much that is depends on the sizes of a model's tensors more than on the plan, and cannot be foretold. So
the first plans leave more than it usually takes, the second step under one of them shows what it does take, and the
plans from then on leave that. A plan's first step, which checks what it rebuilds, takes more, and only has to fit the
device: plans leave for it what the budget does not leave anyway, unless much of the budget stays unused by that.
Where the allocator had to give its cache back in that step the plan stays: the second one shows whether later steps
fit. Later plans check less than the first one, so they take what earlier ones left for too much; where some plan left
too little, once half of that. Where a cache grew beyond the budget in a step behind the second one, later plans are
judged by that step. Under ``auto`` steps may take half of what it leaves of the device: plans whose cache differs by
less are as good.

Plans much alike can differ by the blocks of a whole loss head: whether freed ones fit it hangs on their addresses. So
where a plan took much less than another one did, plans leave what the other one took, if either then leaves little of
the budget unused; if not, they try half of what was too much, and go back to what was enough where that is too little.
Where no plan has less alive and one that holds less takes no less, the budget cannot be kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

#: The share of the room for activations that plans leave while nothing is known.
UNKNOWN = 0.15
#: What is left beyond what was seen: other plans scatter their tensors a little differently.
_MORE = 1.1
#: Likewise, beyond the most that plans took which leave about as much.
_ALIKE = 1.02
#: Of so many bytes by which a plan may exceed the one that was seen, one is left: more tensors are scattered, too.
_SCATTERED = 5
#: Where the device gave too much, plans leave at least this part of it more.
_STEP = 200
#: Likewise where it had nothing left.
_REFUSED = 20
#: Plans are made anew to take what others left for too much, where it is more than this part of what the device gave.
_WORTH = 100
#: More than this part of the budget is not left unused without a try to take it.
_WASTED = 34
#: So many of them.
_GAMBLES = 3
#: The largest share of the room that plans leave.
_MOST = 0.6
#: A cache that was emptied grows for so many steps: what one step leaves behind splits the blocks of the next ones.
_FILLS = 5
#: The step of a plan that shows what later ones take, unless some plan took more behind it.
_SHOWS = 2
#: How often the cache is emptied, or plans are made anew, because the device had to give more than the budget.
_TRIES = 8


class Look(Enum):
    """What a look at the device asks for, before the next forward."""

    NOTHING = auto()
    #: What the allocator caches is to go back to the device, so that the next look sees what steps take.
    EMPTY = auto()
    #: Likewise, and plans are to be made anew.
    PLAN = auto()


@dataclass(frozen=True, slots=True)
class Spare:
    """What a plan leaves to the allocator: so many bytes, and this share of the room for activations."""

    nbytes: int = 0
    share: float = 0.0

    def of(self, room: int) -> int:
        """Bytes, where there is room for so many bytes of activations."""
        return self.nbytes + int(self.share * max(0, room))


#: What plans leave while nothing is known.
FIRST_SPARE = Spare(share=UNKNOWN)


@dataclass
class Fragmentation:
    """Bytes beyond what is alive at the peak; None until a step showed it.

    ``lends`` is the part of what the budget leaves of the device that steps may take besides.
    """

    nbytes: int | None = None
    share: float = UNKNOWN
    lends: float = 0.0
    _planned: int = 0
    _steps: int = 0
    #: The step that showed what later ones take, of the plan that took longest to.
    _shows: int = _SHOWS
    _tries: int = 0
    _first: int = 0
    #: The most that was too little, and the least that was enough since; 0 where none was.
    _short: int = 0
    _enough: int = 0
    #: The most that any plan's steps took.
    _most: int = 0
    #: How often plans took back what was left for too much, although some plan left too little or might.
    _taken_back: int = 0
    #: What plans left at the latest where they tried half: less is not tried again.
    _tried: int = 0
    #: What the device gave at the latest under a plan of least peak that exceeded the budget.
    _least_given: int = 0

    @property
    def spare(self) -> Spare:
        """What plans leave."""
        return Spare(share=self.share) if self.nbytes is None else Spare(self.nbytes)

    def start_over(self) -> None:
        """There is a new plan: what the allocator holds now does not come from steps as they will be."""
        self._steps = 0

    def refused(self, given: int) -> Look:
        """The device had nothing left in a step, so what it gives now says nothing.

        After a plan's first step the next one shows more; after any other plans leave notably more.
        """
        if not self._steps:
            self._steps, self._planned, self._first = 1, 0, 0
            return Look.EMPTY
        if self._tries >= _TRIES:
            return Look.NOTHING
        self._tries += 1
        if self.nbytes is None:
            self.share = min(_MOST, 2 * self.share)
        else:
            self._grew_in(self._steps + 1)
            self.nbytes = self._more(self.nbytes, given // _REFUSED)
        self.start_over()
        return Look.PLAN

    def exceeds(self, over: int, left: int) -> bool:
        """Whether a step took too much that took so many bytes more than the budget, where the device has so many."""
        return over > self.lends * max(0, left + over)

    def look(self, given: int, planned: int, over: int, left: int) -> Look:
        """A step ended.

        Args:
            given: Bytes that the device has given out, to this process and others.
            planned: Bytes that its plan says are alive on the device at the peak.
            over: By how much that is more than the budget allows; negative where it is less.
            left: Bytes that the device could still give.

        Returns:
            What to do before the next forward.
        """
        self._steps += 1
        if self._steps == 1:  # a plan's first step checks what it rebuilds, which takes more than later ones
            self._planned, self._first = 0, int(_MORE * (given - planned)) - max(0, left + over)
            return Look.EMPTY
        self._planned = max(self._planned, planned)
        before = self.nbytes
        if before is not None and self.exceeds(over, left):
            if self._tries >= _TRIES:
                return Look.NOTHING
            self._tries += 1
            if self._steps > _FILLS:  # steps stayed within the budget: something between them did not (an evaluation)
                self._steps, self._planned = 1, 0
                return Look.EMPTY
            self._grew_in(self._steps)
            return self._leave_more(before, given, over)
        if before is None or self._steps == self._shows:
            self.nbytes = self._left_after(before, given, given - over)
        if self.nbytes == before:
            return Look.NOTHING
        self.start_over()
        return Look.PLAN

    def _grew_in(self, step: int) -> None:
        """A plan's cache grew too large in so late a step: sooner none shows what it takes."""
        self._shows = max(self._shows, min(step, _FILLS))

    def _leave_more(self, before: int, given: int, over: int) -> Look:
        """The device gave more than the budget under a plan that left so much."""
        self._most = max(self._most, given - self._planned)
        if self._planned + before > given - over:  # it left less than was asked for: no plan has less alive
            if before > self._short and not self._enough and 0 < self._least_given <= given:
                self._tries = _TRIES
                return Look.NOTHING
            self._least_given = given
        self.nbytes = self._more(before, over + given // _STEP)  # a few bytes less would be as many tries
        self.start_over()
        return Look.PLAN

    def _more(self, before: int, missing: int) -> int:
        """What plans leave where one that left so much left so many bytes too little: no more than was enough."""
        self._short = max(self._short, before)
        if self._enough <= before:
            self._enough = 0
        return min(before + missing, self._enough or before + missing)

    def _left_after(self, before: int | None, given: int, limit: int) -> int:
        """What plans leave after a step that shows what later ones take: as before where less is not worth it."""
        took = max(0, given - self._planned)
        self._most = max(self._most, took)
        taken = self._grown(max(int(_MORE * took), self._first), limit)
        if before is None:
            return taken
        self._enough = before
        return self._less(before, took, taken, given, limit)

    def _less(self, before: int, took: int, taken: int, given: int, limit: int) -> int:
        """Likewise, where ``before`` was enough, this plan ``took`` so much, and others may by that have ``taken``."""
        half = (self._short + before) // 2 if self._short else 0
        near = max(int(_ALIKE * self._most), half, self._first)
        either = near - took <= limit // _WASTED
        if either and self._most - took > given // _WORTH:
            taken = max(taken, near)
        careful = max(taken, half)
        if careful + given // _WORTH < before and not (self._short and (self._tries > 1 or self._taken_back)):
            self._taken_back += bool(self._short)
            return careful
        unused = min(before - took, limit - given)
        roomy = self._planned + before + limit // _WORTH < limit  # it takes less than it may: nothing is to be gained
        if roomy or unused <= limit // _WASTED or self._taken_back >= _GAMBLES:
            return before
        self._taken_back += 1
        if either and near < before:
            return near
        self._tried = max(self._floor(before, given), (max(took, self._tried) + before) // 2)
        return min(before, self._tried)

    def _floor(self, before: int, given: int) -> int:
        """No plan that tries less leaves less: what first steps take, unless that would be no try.

        A card that has nothing left in a first step gets the allocator's cache back, for which one step waits.
        """
        return self._first if self._first + given // _WORTH < before else 0

    def _grown(self, taken: int, limit: int) -> int:
        """What a plan for all of the limit leaves, where one for less took so much beyond what it planned."""
        return taken + max(0, limit - self._planned - taken) // _SCATTERED
