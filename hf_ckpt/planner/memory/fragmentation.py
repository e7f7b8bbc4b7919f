"""What a caching allocator takes of a device beyond what is alive: learnt from steps, left to it by plans. Pure.

A card has to give what torch's allocator reserves, not what is allocated: blocks that were freed and fit nothing stay
reserved. How much that is depends on the sizes of a model's tensors more than on the plan, and cannot be foretold. So
the first plans leave more than it usually takes, the second step under one of them shows what it does take, and the
plans from then on leave that. A plan's first step, which checks what it rebuilds, takes more, and only has to fit the
device: plans leave for it what the budget does not leave anyway. Where the allocator had to give its cache back in that
step the plan stays: the second one shows whether later steps fit. Later plans check less than the first one, so
they take what earlier ones left for too much; where some plan left too little, once half of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

#: The share of the room for activations that plans leave while nothing is known.
UNKNOWN = 0.15
#: What is left beyond what was seen: other plans scatter their tensors a little differently.
_MORE = 1.1
#: Of so many bytes by which a plan may exceed the one that was seen, one is left: more tensors are scattered, too.
_SCATTERED = 5
#: Where the device gave too much, plans leave at least this part of it more.
_STEP = 200
#: Likewise where it had nothing left.
_REFUSED = 20
#: Plans are made anew to take what others left for too much, where it is more than this part of what the device gave.
_WORTH = 100
#: The largest share of the room that plans leave.
_MOST = 0.6
#: A cache that was emptied grows for so many steps: what one step leaves behind splits the blocks of the next ones.
_FILLS = 5
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
    """Bytes beyond what is alive at the peak; None until a step showed it."""

    nbytes: int | None = None
    share: float = UNKNOWN
    _planned: int = 0
    _steps: int = 0
    _tries: int = 0
    _first: int = 0
    #: Later plans leave no less: what was too little, or what nothing is taken back of any more.
    _floor: int = 0

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
            self._floor = self.nbytes = self.nbytes + given // _REFUSED
        self.start_over()
        return Look.PLAN

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
        taken = self._grown(max(int(_MORE * max(0, given - self._planned)), self._first), given - over)
        if self.nbytes is None:
            self.nbytes = taken
        elif over > 0 and self._tries < _TRIES:
            self._tries += 1
            if self._steps > _FILLS:  # steps stayed within the budget: something between them did not (an evaluation)
                self._steps, self._planned = 1, 0
                return Look.EMPTY
            more = self.nbytes + over + given // _STEP  # a few bytes less would be as many tries
            self._floor, self.nbytes = more if self._floor else self.nbytes, more
        elif self._steps == 2 and over <= 0 and max(taken, self._floor) + given // _WORTH < self.nbytes:
            self._take_back(taken)
        else:
            return Look.NOTHING
        self.start_over()
        return Look.PLAN

    def _take_back(self, taken: int) -> None:
        """Leave what was taken; once half of the way to that where some plan left too little."""
        if not self._floor:
            self.nbytes = taken
            return
        assert self.nbytes is not None
        self._floor = self.nbytes = max(taken, (self._floor + self.nbytes) // 2)

    def _grown(self, taken: int, limit: int) -> int:
        """What a plan for all of the limit leaves, where one for less took so much beyond what it planned."""
        return taken + max(0, limit - self._planned - taken) // _SCATTERED
