//! Did GitHub send this? HMAC-SHA256 of the raw body, as in `X-Hub-Signature-256`.

use ring::hmac;

/// Before the digits of a signature.
const PREFIX: &str = "sha256=";

/// The value of `X-Hub-Signature-256` for a body.
pub fn sign(secret: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    format!("{PREFIX}{}", hex::encode(tag.as_ref()))
}

/// Whether a signature is that of the body; takes as long for a wrong one as for the right one.
///
/// An empty secret is none: nothing verifies against it.
pub fn verify(secret: &[u8], body: &[u8], signature: &str) -> bool {
    let Some(tag) = signature.strip_prefix(PREFIX).and_then(|digits| hex::decode(digits).ok()) else {
        return false;
    };
    !secret.is_empty() && hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), body, &tag).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From GitHub's documentation of webhooks.
    const SECRET: &[u8] = b"It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn signatures_are_github_s() {
        assert_eq!(sign(SECRET, BODY), SIGNATURE);
        assert!(verify(SECRET, BODY, SIGNATURE));
    }

    #[test]
    fn anything_else_does_not_verify() {
        let upper = SIGNATURE.to_uppercase();
        for signature in ["", "sha256=", "sha256=zz", &SIGNATURE[7..], &SIGNATURE[..70], &upper, "sha1=00"] {
            assert!(!verify(SECRET, BODY, signature), "{signature}");
        }
        assert!(!verify(SECRET, b"hello, world!", SIGNATURE));
        assert!(!verify(b"", BODY, &sign(b"", BODY)));
    }
}
