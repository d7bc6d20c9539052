//! How does any text become a name or a label that Kubernetes accepts?
//!
//! Text that already fits stays as it is. Text that had to change carries a hash of what it was, in a
//! shape that unchanged text is not allowed to have (it would be hashed too), so two different inputs
//! share an output only if SHA-256 collides in the digits kept.

use sha2::{Digest, Sha256};

/// The longest RFC 1123 label, and the longest label value.
pub const MAX_LABEL: usize = 63;

/// The longest RFC 1123 subdomain: what most objects may be called.
pub const MAX_SUBDOMAIN: usize = 253;

/// 40 bits: a repository would need about a million odd names for an even chance of one collision.
const HEX: usize = 10;

/// Stands in for text of which nothing survives, such as `___`.
const NOTHING_LEFT: &str = "x";

/// Fits any text to an RFC 1123 label: at most 63 of `[a-z0-9-]`, alphanumeric at both ends.
pub fn label(raw: &str) -> String {
    fit(raw, MAX_LABEL, is_label(raw), "-x", slug)
}

/// Fits any text to an RFC 1123 subdomain: labels joined by dots, at most 253 in all.
pub fn subdomain(raw: &str) -> String {
    fit(raw, MAX_SUBDOMAIN, is_subdomain(raw), "-x", slug)
}

/// Fits any text to a label value: empty, or at most 63 of `[A-Za-z0-9_.-]`, alphanumeric at both ends.
pub fn label_value(raw: &str) -> String {
    fit(raw, MAX_LABEL, is_label_value(raw), "_", slug_value)
}

/// The name of a child: `<fitted prefix>-<hex of hash(prefix, parts)>`, at most `max` long (I1).
///
/// The parts are hashed with their lengths, so `["a", "bc"]` and `["ab", "c"]` are different children.
pub fn child(prefix: &str, hash_parts: &[&str], hex_len: usize, max: usize) -> String {
    let hex_len = hex_len.clamp(1, MAX_LABEL - 2);
    let max = max.clamp(hex_len + 2, MAX_SUBDOMAIN);
    let mut parts = Vec::with_capacity(hash_parts.len() + 1);
    parts.push(prefix);
    parts.extend_from_slice(hash_parts);
    format!("{}-{}", head(&slug(prefix), max - hex_len - 1), hash(&parts, hex_len))
}

/// The first `hex_len` hex digits of the SHA-256 of the parts, each preceded by its length.
pub fn hash(parts: &[&str], hex_len: usize) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let mut hex = hex::encode(hasher.finalize());
    hex.truncate(hex_len);
    hex
}

/// Whether the text is an RFC 1123 label as it stands.
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL
        && has_alphanumeric_ends(text)
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether the text is an RFC 1123 subdomain as it stands.
pub fn is_subdomain(text: &str) -> bool {
    // A part of a subdomain may be longer than 63 in Kubernetes: only the whole is limited.
    text.len() <= MAX_SUBDOMAIN
        && text.split('.').all(|part| {
            has_alphanumeric_ends(part)
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

/// Whether the text is a label value as it stands.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || (text.len() <= MAX_LABEL
            && has_alphanumeric_ends(text)
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')))
}

fn has_alphanumeric_ends(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric())
}

fn fit(raw: &str, max: usize, fits: bool, mark: &str, slug: fn(&str) -> String) -> String {
    if fits && !looks_hashed(raw, mark) {
        return raw.to_owned();
    }
    let room = max - mark.len() - HEX;
    format!("{}{mark}{}", head(&slug(raw), room), hash(&[raw], HEX))
}

/// Whether the text has the shape that only changed text may have.
fn looks_hashed(text: &str, mark: &str) -> bool {
    text.len() > HEX
        && text.is_char_boundary(text.len() - HEX)
        && matches!(text.split_at(text.len() - HEX), (front, hex)
            if front.ends_with(mark) && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

/// Lower-case, everything else a single dash, no dash at the ends. No dots: a part between dots may not end
/// in a dash, and cutting could make it.
fn slug(raw: &str) -> String {
    squeeze(raw, |c| c.is_ascii_alphanumeric().then(|| c.to_ascii_lowercase()))
}

fn slug_value(raw: &str) -> String {
    squeeze(raw, |c| (c.is_ascii_alphanumeric() || c == '.' || c == '_').then_some(c))
}

fn squeeze(raw: &str, keep: impl Fn(char) -> Option<char>) -> String {
    let mut out = String::with_capacity(raw.len().min(MAX_SUBDOMAIN));
    for c in raw.chars() {
        if out.len() > MAX_SUBDOMAIN {
            break;
        }
        match keep(c) {
            Some(c) => out.push(c),
            None if out.is_empty() || out.ends_with('-') => {}
            None => out.push('-'),
        }
    }
    out
}

/// At most the first `room` bytes of ASCII text, alphanumeric at both ends, never empty.
fn head(text: &str, room: usize) -> String {
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let cut = text.get(..room.min(text.len())).unwrap_or_default();
    let cut = cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    if cut.is_empty() { NOTHING_LEFT.to_owned() } else { cut.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        assert_eq!(label("web-1"), "web-1");
        assert_eq!(label("plan-0123456789"), "plan-0123456789");
        assert_eq!(subdomain("a.b-c.d"), "a.b-c.d");
        assert_eq!(label_value("My_Repo"), "My_Repo");
        assert_eq!(label_value(""), "");
    }

    #[test]
    fn what_does_not_fit_is_readable_and_carries_a_hash() {
        assert!(label("My_Repo").starts_with("my-repo-x"));
        assert!(label(".github").starts_with("github-x"));
        assert!(label_value("feature/a b").starts_with("feature-a-b_"));
        assert!(label("___").starts_with("x-x"));
        assert_eq!(label(&"a".repeat(100)).len(), MAX_LABEL);
        assert_ne!(label("My_Repo"), label("my-repo"));
        assert_ne!(label("My_Repo"), label("My-Repo"));
    }

    #[test]
    fn text_that_imitates_a_hashed_name_does_not_get_that_name() {
        let hashed = label("My_Repo");
        assert_ne!(label(&hashed), hashed);
        let hashed = label_value("a/b");
        assert_ne!(label_value(&hashed), hashed);
    }

    #[test]
    fn children_of_different_parts_have_different_names() {
        let name = |parts: &[&str]| child("repo", parts, 8, MAX_LABEL);
        assert_eq!(name(&["a", "bc"]), name(&["a", "bc"]));
        assert_ne!(name(&["a", "bc"]), name(&["ab", "c"]));
        assert_ne!(name(&["a"]), name(&["a", ""]));
        assert_ne!(child("My_Repo", &["a"], 8, 63), child("my-repo", &["a"], 8, 63));
        assert_eq!(child(&"t".repeat(80), &["a"], 10, 63).len(), 63);
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_name(raw in any::<String>()) {
            prop_assert!(is_label(&label(&raw)), "{}", label(&raw));
            prop_assert!(is_subdomain(&subdomain(&raw)), "{}", subdomain(&raw));
            prop_assert!(is_label_value(&label_value(&raw)), "{}", label_value(&raw));
        }

        #[test]
        fn any_long_text_gives_a_valid_name(raw in proptest::collection::vec(any::<char>(), 0..400)) {
            let raw: String = raw.into_iter().collect();
            prop_assert!(is_label(&label(&raw)));
            prop_assert!(is_subdomain(&subdomain(&raw)));
            prop_assert!(is_label_value(&label_value(&raw)));
        }

        #[test]
        fn any_prefix_gives_a_valid_child(raw in any::<String>(), part in any::<String>(), hex in 0usize..80, max in 0usize..300) {
            let name = child(&raw, &[&part], hex, max);
            prop_assert!(is_subdomain(&name), "{}", name);
            prop_assert!(max < 64 || name.len() <= max);
        }

        // Few letters, so that different inputs are often nearly the same.
        #[test]
        fn different_text_gives_different_names(a in near(), b in near()) {
            prop_assert_eq!(a == b, label(&a) == label(&b));
            prop_assert_eq!(a == b, subdomain(&a) == subdomain(&b));
            prop_assert_eq!(a == b, label_value(&a) == label_value(&b));
            prop_assert_eq!(a == b, child(&a, &[], 10, 63) == child(&b, &[], 10, 63));
        }
    }

    fn near() -> impl Strategy<Value = String> {
        let letter = prop_oneof![Just('a'), Just('A'), Just('-'), Just('_'), Just('.'), Just('é')];
        proptest::collection::vec(letter, 0..4).prop_map(|letters| letters.into_iter().collect())
    }
}
