//! A small deterministic source of choices (`SplitMix64`): a walk is its seed.

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number from 0 to `n - 1`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// True once in `n`.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
