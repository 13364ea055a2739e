//! How long the windows of a recovery are. Pure.

use chrono::TimeDelta;
use posthorn_domain::limits;

/// What a window holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Events of all streams: so many rows are read. Counted to [`limits::RECOVER_EVENTS`] and one more.
    pub(super) events: i64,
    /// Deliveries of the stream's own: so many are probed, and may be written.
    pub(super) deliveries: i64,
}

impl Seen {
    /// Whether there is nothing of the stream's own in the window. A look that ended at its limit has not seen the rest of it.
    pub(super) const fn is_nothing(self) -> bool {
        self.deliveries == 0 && self.events <= limits::RECOVER_EVENTS
    }

    fn is_within(self, part: i64) -> bool {
        self.events <= limits::RECOVER_EVENTS / part
            && self.deliveries <= limits::RECOVER_DELIVERIES / part
    }
}

/// The length of the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width(TimeDelta);

const LEAST: TimeDelta = TimeDelta::milliseconds(limits::RECOVER_WINDOW_LEAST_MS);
const MOST: TimeDelta = TimeDelta::milliseconds(limits::RECOVER_WINDOW_MOST_MS);

impl Width {
    /// A second: at full speed a few tens of thousands of events.
    pub(super) const FIRST: Self = Self(TimeDelta::seconds(1));

    pub(super) const fn span(self) -> TimeDelta {
        self.0
    }

    /// The length with which a window that holds this is to be looked at once more; `None`: it can be taken. One that is as
    /// short as can be is taken, whatever it holds.
    pub(super) fn narrower(self, seen: Seen) -> Option<Self> {
        let narrower = Self((self.0 / 4).max(LEAST));
        (!seen.is_within(1) && narrower != self).then_some(narrower)
    }

    /// The length of the window behind one that held this: four times as long while that would still fit.
    pub(super) fn next(self, seen: Seen) -> Self {
        if seen.is_within(4) {
            Self((self.0 * 4).min(MOST))
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Seen = Seen {
        events: 0,
        deliveries: 0,
    };

    /// INV-2: what was not looked at may hold something.
    #[test]
    fn a_window_that_was_not_seen_to_its_end_is_not_passed_over() {
        let full = Seen {
            events: limits::RECOVER_EVENTS + 1,
            ..NOTHING
        };
        assert!(NOTHING.is_nothing() && !full.is_nothing());
    }

    /// Windows until so much time is done, where every window holds the same.
    fn windows(days: i64, seen: Seen) -> usize {
        let (mut width, mut done, mut windows) = (Width::FIRST, TimeDelta::zero(), 0);
        while done < TimeDelta::days(days) {
            done += width.span();
            width = width.next(seen);
            windows += 1;
        }
        windows
    }

    #[test]
    fn days_without_events_take_few_windows() {
        assert!(windows(7, NOTHING) <= 16, "{}", windows(7, NOTHING));
        assert!(windows(30, NOTHING) <= 39, "{}", windows(30, NOTHING));
    }

    #[test]
    fn a_window_with_a_quarter_of_what_fits_does_not_grow() {
        let quarter = Seen {
            events: limits::RECOVER_EVENTS / 4 + 1,
            ..NOTHING
        };
        assert_eq!(Width::FIRST.next(quarter), Width::FIRST);
    }

    /// INV-11: either bound narrows it, down to a length that is taken whatever it holds.
    #[test]
    fn a_window_with_more_than_fits_is_narrowed_until_it_can_be_no_narrower() {
        let events = Seen {
            events: limits::RECOVER_EVENTS + 1,
            ..NOTHING
        };
        let deliveries = Seen {
            deliveries: limits::RECOVER_DELIVERIES + 1,
            ..NOTHING
        };
        for full in [events, deliveries] {
            let mut width = Width::FIRST;
            let mut looks = 0;
            while let Some(narrower) = width.narrower(full) {
                assert!(narrower.span() < width.span());
                width = narrower;
                looks += 1;
            }
            assert_eq!((width.span(), looks), (LEAST, 5));
        }
        assert_eq!(Width::FIRST.narrower(NOTHING), None);
    }
}
