//! Is this string a legal name, label or qualified key?
//!
//! Each function answers with the complaints kube-apiserver would make, none when the string is good. The
//! rules are byte loops rather than regular expressions: they run on every write of every object.

/// RFC 1123: a DNS label has at most 63 bytes.
pub(crate) const DNS_LABEL_MAX: usize = 63;
/// RFC 1123: a DNS name has at most 253 bytes.
pub(crate) const DNS_SUBDOMAIN_MAX: usize = 253;
/// The name part of a qualified name and a label's value share the label limit.
pub(crate) const LABEL_PART_MAX: usize = 63;

const DNS_LABEL_SHAPE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN_SHAPE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_1035_SHAPE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_SHAPE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED_PARTS: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE_SHAPE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// A DNS label in lower case (namespaces, services' cousins).
pub fn dns1123_label(s: &str) -> Vec<String> {
    let mut wrong = too_long(s, DNS_LABEL_MAX);
    if !is_label(s) {
        wrong.push(DNS_LABEL_SHAPE.to_owned());
    }
    wrong
}

/// Labels joined by dots: the rule for most objects' names.
pub fn dns1123_subdomain(s: &str) -> Vec<String> {
    let mut wrong = too_long(s, DNS_SUBDOMAIN_MAX);
    if !s.split('.').all(is_label) {
        wrong.push(DNS_SUBDOMAIN_SHAPE.to_owned());
    }
    wrong
}

/// A DNS label that starts with a letter: the names of Services.
pub fn dns1035_label(s: &str) -> Vec<String> {
    let mut wrong = too_long(s, DNS_LABEL_MAX);
    if !(is_label(s) && s.starts_with(|c: char| c.is_ascii_lowercase())) {
        wrong.push(DNS_1035_SHAPE.to_owned());
    }
    wrong
}

/// Anything that survives as one segment of a URL path: the names of RBAC objects.
pub fn path_segment_name(s: &str) -> Vec<String> {
    match s {
        "." | ".." => vec![format!("may not be '{s}'")],
        _ => {
            ['/', '%'].iter().filter(|c| s.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
        }
    }
}

/// `[prefix/]name`: keys of labels and annotations, finalizers.
pub fn qualified_name(s: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match s.split_once('/') {
        None => s,
        Some((_, rest)) if rest.contains('/') => return vec![QUALIFIED_PARTS.to_owned()],
        Some((prefix, rest)) => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(dns1123_subdomain(prefix).into_iter().map(|m| format!("prefix part {m}")));
            }
            rest
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_PART_MAX {
        wrong.push(format!("name part must be no more than {LABEL_PART_MAX} bytes"));
    }
    if !is_label_text(name) {
        wrong.push(QUALIFIED_SHAPE.to_owned());
    }
    wrong
}

/// A label's value: empty, or shaped like the name part of a qualified name.
pub fn label_value(s: &str) -> Vec<String> {
    let mut wrong = too_long(s, LABEL_PART_MAX);
    if !s.is_empty() && !is_label_text(s) {
        wrong.push(LABEL_VALUE_SHAPE.to_owned());
    }
    wrong
}

fn too_long(s: &str, max: usize) -> Vec<String> {
    if s.len() > max { vec![format!("must be no more than {max} bytes")] } else { Vec::new() }
}

fn is_label(s: &str) -> bool {
    bounded(s, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), |b| b == b'-')
}

fn is_label_text(s: &str) -> bool {
    bounded(s, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// Non-empty, starts and ends with an `edge` byte, and has only `edge` or `inner` bytes between.
fn bounded(s: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = s.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            edge(*first) && edge(*last) && bytes.iter().all(|b| edge(*b) || inner(*b))
        }
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_labels_joined_by_single_dots() {
        for good in ["a", "a-b.c", "0", "x.example.com"] {
            assert!(dns1123_subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", "Bad_Name", "a..b", ".a", "a.", "-a", "a-", "a b", "é"] {
            assert!(!dns1123_subdomain(bad).is_empty(), "{bad}");
        }
        assert!(!dns1123_subdomain(&"a".repeat(254)).is_empty());
        assert!(dns1123_label("a.b").len() == 1);
        assert!(!dns1035_label("0a").is_empty());
    }

    #[test]
    fn qualified_names_have_one_optional_prefix() {
        for good in ["a", "A_b.c", "example.com/x", "kubernetes.io/metadata.name"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        for bad in ["", "/x", "a/b/c", "EXAMPLE.com/x", "a/", "-a", &"a".repeat(64)] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn rbac_names_may_hold_colons_but_no_slashes() {
        assert!(path_segment_name("system:controller:x").is_empty());
        for bad in [".", "..", "a/b", "a%b"] {
            assert!(!path_segment_name(bad).is_empty(), "{bad}");
        }
    }
}
