"""`protocol.credit`: both ends and the wire between them, through every order of sending, arriving and taking."""

import copy
import itertools

import pytest

from flowpoint.protocol.credit import WINDOW_BATCHES, WINDOW_BYTES, ReceiverCredit, SenderCredit


class Channel:
    """A sender, a wire each way, and a receiver. `sizes` are the batches that want to go through."""

    def __init__(self, sizes, batches, nbytes):
        self.sizes = sizes
        self.window = (batches, nbytes)
        self.sender = SenderCredit(batches, nbytes)
        self.receiver = ReceiverCredit(batches, nbytes)
        self.sent = 0
        self.in_flight = ()
        self.queue = ()
        self.grants = ()

    def key(self):
        return self.sent, self.in_flight, self.queue, self.grants, self.sender.unused

    def moves(self):
        moves = {
            self.send: self.sent < len(self.sizes) and self.sender.writable,
            self.arrive: self.in_flight,
            self.take: self.queue,
            self.grant: self.grants,
        }
        return [move.__name__ for move, is_possible in moves.items() if is_possible]

    def send(self):
        size = self.sizes[self.sent]
        self.sender.spend(size)
        self.sent += 1
        self.in_flight += (size,)

    def arrive(self):
        self.queue += self.in_flight[:1]
        self.in_flight = self.in_flight[1:]

    def take(self):
        size, self.queue = self.queue[0], self.queue[1:]
        grant = self.receiver.taken(size)
        if grant:
            self.grants += (grant,)

    def grant(self):
        self.sender.grant(*self.grants[0])
        self.grants = self.grants[1:]

    def check(self):
        owed = copy.copy(self.receiver).flush() or (0, 0)
        batches = len(self.in_flight) + len(self.queue) + sum(grant[0] for grant in self.grants) + owed[0]
        nbytes = sum(self.in_flight) + sum(self.queue) + sum(grant[1] for grant in self.grants) + owed[1]
        assert self.sender.unused == (self.window[0] - batches, self.window[1] - nbytes)
        assert len(self.queue) <= self.window[0]


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
@pytest.mark.parametrize("nbytes", [1, 100])
def test_when_batches_of_any_size_are_sent_in_any_order_then_nobody_starves_and_nothing_is_lost(batches, nbytes):
    for sizes in itertools.product((0, 1, 49, 250), repeat=4):
        stack = [Channel(sizes, batches, nbytes)]
        seen = set()
        while stack:
            channel = stack.pop()
            if channel.key() in seen:
                continue
            seen.add(channel.key())
            channel.check()
            moves = channel.moves()
            assert moves or channel.sent == len(sizes), f"stuck: {channel.key()} of {sizes}"
            for move in moves:
                after = copy.copy(channel)
                after.sender, after.receiver = copy.copy(channel.sender), copy.copy(channel.receiver)
                getattr(after, move)()
                stack.append(after)


def test_when_a_window_is_used_up_then_the_sender_is_not_writable():
    credit = SenderCredit(batches=2, nbytes=100)

    credit.spend(10)
    assert credit.writable
    credit.spend(10)
    assert not credit.writable


def test_when_the_bytes_are_used_up_then_the_sender_is_not_writable():
    credit = SenderCredit(batches=4, nbytes=100)

    credit.spend(100)

    assert not credit.writable


def test_when_a_batch_is_cut_into_pieces_then_all_of_them_may_go_and_are_paid_back():
    sender, receiver = SenderCredit(batches=2, nbytes=100), ReceiverCredit(batches=2, nbytes=100)

    for _ in range(5):
        sender.spend(90)
    assert sender.unused == (-3, -350)

    for _ in range(5):
        sender.grant(*receiver.taken(90))
    assert sender.unused == (2, 100)


def test_when_small_batches_are_taken_then_grants_are_bundled_to_half_a_window():
    credit = ReceiverCredit(batches=8, nbytes=1_000_000)

    grants = [credit.taken(1) for _ in range(8)]

    assert grants == [None, None, None, (4, 4)] * 2


def test_when_a_large_batch_is_taken_then_it_is_granted_at_once():
    credit = ReceiverCredit(batches=8, nbytes=100)

    assert credit.taken(50) == (1, 50)


def test_when_flushed_then_what_is_owed_goes_out_once():
    credit = ReceiverCredit(batches=8, nbytes=100)
    credit.taken(7)

    assert credit.flush() == (1, 7)
    assert credit.flush() is None


def test_when_no_window_is_named_then_both_ends_start_with_the_same():
    assert SenderCredit().unused == (WINDOW_BATCHES, WINDOW_BYTES) == (4, 1024 * 1024)
    assert ReceiverCredit().taken(WINDOW_BYTES // 2) == (1, WINDOW_BYTES // 2)


@pytest.mark.parametrize("grant", [(1, 0), (0, 1)])
def test_when_more_is_granted_than_was_sent_then_it_is_a_bug(grant):
    with pytest.raises(AssertionError, match="granted than sent"):
        SenderCredit(1, 1).grant(*grant)


@pytest.mark.parametrize("window", [(0, 1), (1, 0)])
@pytest.mark.parametrize("end", [SenderCredit, ReceiverCredit])
def test_when_a_window_is_empty_then_it_is_a_bug(end, window):
    with pytest.raises(AssertionError, match="a window holds"):
        end(*window)
