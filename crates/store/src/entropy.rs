//! Randomness, as an argument. The one file that draws it.

use rand::{Rng as _, RngCore as _};

/// A source of unpredictable bytes, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entropy;

impl Entropy {
    /// `N` random bytes, fit for keys.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this file is where randomness is drawn"
    )]
    pub fn bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        rand::rng().fill_bytes(&mut bytes);
        bytes
    }

    /// A number drawn evenly from [0, 1).
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this file is where randomness is drawn"
    )]
    pub fn uniform(self) -> f64 {
        rand::rng().random()
    }
}
