//! Maps by ids, for what is looked up for every delivery.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// A map by ids, or by what consists of them.
///
/// They are minted by this program, most of their bits at random, and callers choose none: nobody can aim at one bucket, and a
/// hash made to withstand that is paid for with every lookup. Not for names and texts that callers send.
pub type IdMap<K, V> = HashMap<K, V, RandomState>;

/// A set of such.
pub type IdSet<K> = HashSet<K, RandomState>;
