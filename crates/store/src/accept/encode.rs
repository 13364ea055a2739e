//! How payloads lie in the log: as submitted, or zstd where that is worth it.

use bytes::Bytes;
use posthorn_domain::limits;

/// As submitted.
const IDENTITY: i16 = 0;
/// One zstd frame.
const ZSTD: i16 = 1;

/// Codec and stored bytes. Compresses above 2 KiB, at level 1, and keeps the frame only where it is smaller.
pub(super) fn encode(payload: &Bytes) -> (i16, Bytes) {
    if payload.len() <= limits::COMPRESS_ABOVE {
        return (IDENTITY, payload.clone());
    }
    match zstd::bulk::compress(payload, 1) {
        Ok(frame) if frame.len() < payload.len() => (ZSTD, Bytes::from(frame)),
        Ok(_) | Err(_) => (IDENTITY, payload.clone()),
    }
}

/// The payload as submitted; `None` where the stored bytes are not what the row says.
pub(crate) fn decode(codec: i16, size: i32, stored: Vec<u8>) -> Option<Bytes> {
    match codec {
        IDENTITY => Some(Bytes::from(stored)),
        ZSTD => {
            let payload = zstd::bulk::decompress(&stored, usize::try_from(size).ok()?).ok()?;
            (i32::try_from(payload.len()) == Ok(size)).then(|| Bytes::from(payload))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_back_byte_for_byte_whatever_its_size() {
        for size in [0, 1, 2_048, 2_049, 100_000, 1_048_576] {
            let payload: Bytes = (0..size)
                .map(|i: u32| u8::try_from(i % 251).unwrap())
                .collect();
            let (codec, stored) = encode(&payload);
            assert_eq!(
                decode(codec, i32::try_from(size).unwrap(), stored.to_vec()),
                Some(payload)
            );
        }
    }

    #[test]
    fn what_does_not_compress_is_stored_as_it_is() {
        let mut state = 1_u64;
        let noise: Bytes = (0..4_096)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                u8::try_from(state >> 56).unwrap()
            })
            .collect();
        assert_eq!(encode(&noise).0, IDENTITY);
    }
}
