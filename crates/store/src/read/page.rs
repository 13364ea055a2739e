//! Pages of a list that is ordered by a unique key.
//!
//! A page is fetched as the rows between two keys, upward or downward, one more than asked for: the one too
//! many says that there is a further page.

/// How a list is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The greatest key first.
    NewestFirst,
    /// The smallest key first.
    OldestFirst,
}

/// Where in the list, seen in its order, a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge<K> {
    /// At the list's beginning.
    Start,
    /// With the row that follows this one.
    After(K),
    /// With the rows that come before this one, up to it.
    Before(K),
}

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<K> {
    /// The list's order.
    pub order: Order,
    /// Where the page begins.
    pub edge: Edge<K>,
    /// Rows at most.
    pub limit: u32,
}

/// A key that rows are ordered by.
pub trait PageKey: Copy + Ord {
    /// The next greater key: turns "greater than" into "at least".
    #[must_use]
    fn successor(self) -> Self;
}

/// Some rows of a list, in its order.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// There are rows before these.
    pub before: bool,
    /// There are rows after these.
    pub after: bool,
}

/// What to ask of the database: rows from `low` (inclusive) to `high` (exclusive), in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan<K> {
    pub(super) low: K,
    pub(super) high: K,
    pub(super) upward: bool,
    /// One more than the page has.
    pub(super) rows: i64,
}

impl<K: PageKey> Slice<K> {
    /// The scan that finds this slice among the rows from `low` (inclusive) to `high` (exclusive).
    pub(super) fn scan(self, low: K, high: K) -> Scan<K> {
        let forward = !matches!(self.edge, Edge::Before(_));
        let upward = (self.order == Order::OldestFirst) == forward;
        let rows = i64::from(self.limit) + 1;
        let (low, high) = match self.edge {
            Edge::Start => (low, high),
            Edge::After(key) | Edge::Before(key) if upward => (low.max(key.successor()), high),
            Edge::After(key) | Edge::Before(key) => (low, high.min(key)),
        };
        Scan {
            low,
            high,
            upward,
            rows,
        }
    }

    /// Puts the rows that the scan found into the list's order and says what lies around them.
    pub(super) fn page<T>(self, mut rows: Vec<T>) -> Page<T> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let some = !rows.is_empty();
        match self.edge {
            Edge::Start => Page {
                rows,
                before: false,
                after: more,
            },
            Edge::After(_) => Page {
                rows,
                before: some,
                after: more,
            },
            Edge::Before(_) => {
                rows.reverse();
                Page {
                    rows,
                    before: more,
                    after: some,
                }
            }
        }
    }
}

impl<T> Default for Page<T> {
    /// The one page of an empty list.
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            before: false,
            after: false,
        }
    }
}

impl<T> Page<T> {
    /// The same page of something made from each row.
    pub fn map<U>(self, make: impl FnMut(T) -> U) -> Page<U> {
        Page {
            rows: self.rows.into_iter().map(make).collect(),
            before: self.before,
            after: self.after,
        }
    }

    /// As [`Page::map`], where making may fail.
    pub(super) fn try_map<U, E>(self, make: impl FnMut(T) -> Result<U, E>) -> Result<Page<U>, E> {
        let rows = self.rows.into_iter().map(make).collect::<Result<_, _>>()?;
        Ok(Page {
            rows,
            before: self.before,
            after: self.after,
        })
    }
}

/// Implements [`PageKey`] for ids: the next id is the next number.
macro_rules! id_keys {
    ($($id:ty),+) => {
        $(impl PageKey for $id {
            fn successor(self) -> Self {
                Self::from_uuid(uuid::Uuid::from_u128(self.uuid().as_u128().saturating_add(1)))
            }
        })+
    };
}

id_keys!(
    posthorn_domain::id::EventId,
    posthorn_domain::id::EndpointId,
    posthorn_domain::id::AuditId,
    posthorn_domain::id::KeyId
);

#[cfg(test)]
mod tests {
    use super::*;

    impl PageKey for u32 {
        fn successor(self) -> Self {
            self + 1
        }
    }

    /// What the database does with a scan.
    fn fetch(table: &[u32], slice: Slice<u32>) -> Page<u32> {
        let scan = slice.scan(0, u32::MAX);
        let mut rows: Vec<_> = table
            .iter()
            .copied()
            .filter(|row| (scan.low..scan.high).contains(row))
            .collect();
        rows.sort_unstable();
        if !scan.upward {
            rows.reverse();
        }
        rows.truncate(usize::try_from(scan.rows).unwrap());
        slice.page(rows)
    }

    fn walk(table: &[u32], order: Order, limit: u32) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
        let mut forth = Vec::new();
        let mut page = fetch(
            table,
            Slice {
                order,
                edge: Edge::Start,
                limit,
            },
        );
        while page.after {
            let last = *page.rows.last().unwrap();
            forth.push(page.rows);
            page = fetch(
                table,
                Slice {
                    order,
                    edge: Edge::After(last),
                    limit,
                },
            );
        }
        let mut back = vec![page.rows.clone()];
        forth.push(page.rows.clone());
        while page.before {
            let first = page.rows[0];
            page = fetch(
                table,
                Slice {
                    order,
                    edge: Edge::Before(first),
                    limit,
                },
            );
            back.push(page.rows.clone());
        }
        back.reverse();
        (forth, back)
    }

    #[test]
    fn walking_back_gives_the_pages_of_walking_forth() {
        for rows in [0, 1, 4, 5, 6, 10, 11] {
            let table: Vec<u32> = (1..=rows).collect();
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let (forth, back) = walk(&table, order, 5);
                assert_eq!(forth, back, "{rows} rows, {order:?}");
                assert_eq!(forth.concat().len(), table.len());
            }
        }
    }

    #[test]
    fn two_full_pages_have_no_empty_third() {
        let table: Vec<u32> = (1..=10).collect();
        assert_eq!(walk(&table, Order::NewestFirst, 5).0.len(), 2);
    }

    #[test]
    fn the_first_page_reached_from_behind_has_nothing_before_it() {
        let table: Vec<u32> = (1..=10).collect();
        let page = fetch(
            &table,
            Slice {
                order: Order::NewestFirst,
                edge: Edge::Before(5),
                limit: 5,
            },
        );
        assert_eq!(page.rows, [10, 9, 8, 7, 6]);
        assert!(!page.before);
        assert!(page.after);
    }
}
