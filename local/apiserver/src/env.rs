//! Where do time and randomness come from?
//!
//! From here and nowhere else: the server asks an [`Env`], so that a simulation can answer.

use std::sync::Mutex;

use jiff::Timestamp;

/// Letters and digits Kubernetes uses for generated names: no vowels (no words), no look-alikes.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Kubernetes appends five characters to `generateName`.
const SUFFIX_LEN: usize = 5;

/// The server's only source of time and chance.
pub trait Env: Send + Sync {
    /// The time that goes into `creationTimestamp` and its kin.
    fn now(&self) -> Timestamp;
    /// A fresh uid for an object, named as `resource.group/namespace/name`: chance needs no name, but a
    /// simulation that gives the same object the same uid can compare two runs.
    fn uid(&self, object: &str) -> String;
    /// Five characters to append to `metadata.generateName`.
    fn suffix(&self) -> String;
}

/// The machine's clock and random numbers.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealEnv;

impl Env for RealEnv {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uid(&self, _: &str) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    fn suffix(&self) -> String {
        let mut rng = fastrand::Rng::new();
        suffix(&mut rng)
    }
}

/// A clock that stands still until told, and numbers that follow from a seed.
#[derive(Debug)]
pub struct SeededEnv {
    state: Mutex<Seeded>,
}

#[derive(Debug)]
struct Seeded {
    now: Timestamp,
    rng: fastrand::Rng,
}

impl SeededEnv {
    /// An environment whose every answer follows from `seed` and the clock it is given.
    pub fn new(seed: u64, now: Timestamp) -> Self {
        SeededEnv { state: Mutex::new(Seeded { now, rng: fastrand::Rng::with_seed(seed) }) }
    }

    /// Sets the clock. It may move backwards: real ones do.
    pub fn set_now(&self, now: Timestamp) {
        self.lock().now = now;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seeded> {
        // Nothing can panic while the lock is held, so a poisoned lock still guards whole values.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Env for SeededEnv {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn uid(&self, _: &str) -> String {
        let bits = self.lock().rng.u128(..);
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }

    fn suffix(&self) -> String {
        suffix(&mut self.lock().rng)
    }
}

fn suffix(rng: &mut fastrand::Rng) -> String {
    (0..SUFFIX_LEN).filter_map(|_| rng.choice(SUFFIX_ALPHABET.iter())).map(|&b| char::from(b)).collect()
}

/// Kubernetes writes `metav1.Time` to the second, in UTC.
pub(crate) fn to_second(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_name_and_uid() {
        let answers = |seed| {
            let env = SeededEnv::new(seed, Timestamp::UNIX_EPOCH);
            (env.uid("a"), env.suffix(), env.uid("a"))
        };
        assert_eq!(answers(7), answers(7));
        assert_ne!(answers(7), answers(8));
    }

    #[test]
    fn a_suffix_is_five_safe_characters() {
        let suffix = RealEnv.suffix();
        assert_eq!(suffix.len(), 5);
        assert!(suffix.bytes().all(|b| SUFFIX_ALPHABET.contains(&b)));
    }

    #[test]
    fn times_are_written_to_the_second() {
        let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(to_second(at), "2026-01-02T03:04:05Z");
    }
}
