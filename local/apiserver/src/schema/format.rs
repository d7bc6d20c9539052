//! Is this string a date, an address, a UUID…?
//!
//! Only the formats kube-apiserver checks are known here; it ignores every other, and so do we.

use regex::Regex;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// A `format` whose strings are checked. `int32` and `int64` bound integers instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Int32,
    Int64,
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    HexColor,
    RgbColor,
    Byte,
    Date,
    DateTime,
    Duration,
    ShortName,
    LongName,
    /// Of built-in kinds only: custom resources may not ask for it.
    Quantity,
}

type Check = fn(&str) -> bool;

/// Each format that a schema may name, and whether a string is of it.
const FORMATS: [(Format, &str, Check); 22] = [
    (Format::Int32, "int32", |_| true),
    (Format::Int64, "int64", |_| true),
    (Format::BsonObjectId, "bsonobjectid", |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit())),
    (Format::Uri, "uri", is_uri),
    (Format::Email, "email", is_email),
    (Format::Hostname, "hostname", is_hostname),
    (Format::Ipv4, "ipv4", |s| s.parse::<Ipv4Addr>().is_ok()),
    (Format::Ipv6, "ipv6", |s| s.contains(':') && s.parse::<Ipv6Addr>().is_ok()),
    (Format::Cidr, "cidr", is_cidr),
    (Format::Mac, "mac", is_mac),
    (Format::Uuid, "uuid", |s| is_uuid(s, None)),
    (Format::Uuid3, "uuid3", |s| is_uuid(s, Some(b'3'))),
    (Format::Uuid4, "uuid4", |s| is_uuid(s, Some(b'4'))),
    (Format::Uuid5, "uuid5", |s| is_uuid(s, Some(b'5'))),
    (Format::HexColor, "hexcolor", is_hex_color),
    (Format::RgbColor, "rgbcolor", |s| RGB.as_ref().is_some_and(|r| r.is_match(s))),
    (Format::Byte, "byte", is_base64),
    (Format::Date, "date", |s| s.len() == 10 && s.parse::<jiff::civil::Date>().is_ok()),
    (Format::DateTime, "date-time", is_date_time),
    (Format::Duration, "duration", is_duration),
    (Format::ShortName, "k8s-short-name", |s| crate::validation::dns1123_label(s).is_empty()),
    (Format::LongName, "k8s-long-name", |s| crate::validation::dns1123_subdomain(s).is_empty()),
];

impl Format {
    /// The format of that name, if it is one that is checked. Dashes are optional, as for the real server.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let plain = name.replace('-', "");
        FORMATS.iter().find(|(_, n, _)| *n == name || n.replace('-', "") == plain).map(|(f, ..)| *f)
    }

    pub(crate) fn name(self) -> &'static str {
        FORMATS.iter().find(|(f, ..)| *f == self).map_or("", |(_, n, _)| n)
    }

    /// Whether the integer fits the width; only two formats speak of numbers.
    pub(crate) fn holds(self, n: &serde_json::Number) -> bool {
        let whole = n.as_i128().or_else(|| n.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i128));
        match (self, whole) {
            (Self::Int32, Some(n)) => i32::try_from(n).is_ok(),
            (Self::Int64, Some(n)) => i64::try_from(n).is_ok(),
            (_, _) => true,
        }
    }

    /// Whether the string is of this format.
    pub(crate) fn accepts(self, s: &str) -> bool {
        match FORMATS.iter().find(|(format, ..)| *format == self) {
            Some((.., accepts)) => accepts(s),
            None => s.parse::<crate::validation::Quantity>().is_ok(),
        }
    }
}

static RGB: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let part = r"([01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])";
    Regex::new(&format!(r"^rgb\(\s*{part}\s*,\s*{part}\s*,\s*{part}\s*\)$")).ok()
});

/// `YYYY-MM-DDThh:mm:ss[.fff](Z|±hh:mm)`: jiff alone would also take a space and other ISO 8601 shapes.
fn is_date_time(s: &str) -> bool {
    let fixed = s.get(10..11).is_some_and(|t| t.eq_ignore_ascii_case("t"));
    let zoned = s.ends_with(['Z', 'z'])
        || s.len().checked_sub(6).and_then(|i| s.get(i..=i)).is_some_and(|c| c == "+" || c == "-");
    fixed && zoned && s.parse::<jiff::Timestamp>().is_ok()
}

fn is_uri(s: &str) -> bool {
    s.parse::<http::Uri>().is_ok_and(|u| u.path().starts_with('/') || u.scheme().is_some())
}

fn is_email(s: &str) -> bool {
    let Some((local, domain)) = s.rsplit_once('@') else { return false };
    let plain = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let local_ok =
        quoted || (!local.is_empty() && local.split('.').all(|p| !p.is_empty()) && local.chars().all(plain));
    local_ok && (is_hostname(domain) || (domain.starts_with('[') && domain.ends_with(']')))
}

fn is_hostname(s: &str) -> bool {
    let label = |l: &str| {
        let inner = l.chars().all(|c| c.is_alphanumeric() || c == '-');
        !l.is_empty() && l.len() <= 63 && inner && !l.starts_with('-') && !l.ends_with('-')
    };
    !s.is_empty() && s.len() <= 255 && s.strip_suffix('.').unwrap_or(s).split('.').all(label)
}

fn is_cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else { return false };
    let canonical = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let Ok(bits) = bits.parse::<u8>() else { return false };
    let fits = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => bits <= 32,
        (Err(_), Ok(_)) => bits <= 128,
        (Err(_), Err(_)) => false,
    };
    canonical && fits
}

fn is_mac(s: &str) -> bool {
    [(':', 2), ('-', 2), ('.', 4)].iter().any(|(separator, width)| {
        let parts: Vec<&str> = s.split(*separator).collect();
        let bytes = parts.len() * width / 2;
        matches!(bytes, 6 | 8 | 20)
            && parts.iter().all(|p| p.len() == *width && p.bytes().all(|b| b.is_ascii_hexdigit()))
    })
}

/// Dashes are optional, as kube-openapi has it; a version fixes two digits.
fn is_uuid(s: &str, version: Option<u8>) -> bool {
    let dashes_ok = match s.len() {
        32 => !s.contains('-'),
        36 => [8, 13, 18, 23].iter().all(|i| s.as_bytes().get(*i) == Some(&b'-')),
        _ => false,
    };
    let digits: Vec<u8> = s.bytes().filter(|b| *b != b'-').collect();
    let version_ok = match version {
        None => true,
        Some(v) => {
            let variant = digits.get(16).is_some_and(|b| b"89abAB".contains(b));
            digits.get(12) == Some(&v) && (v == b'3' || variant)
        }
    };
    dashes_ok && digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit) && version_ok
}

fn is_hex_color(s: &str) -> bool {
    let digits = s.strip_prefix('#').unwrap_or(s);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_base64(s: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(s).is_ok()
}

/// A Go duration (`1h30m`), or words as in `3 days`, both of which kube-openapi takes.
fn is_duration(s: &str) -> bool {
    is_go_duration(s) || DURATION_WORDS.as_ref().is_some_and(|r| r.is_match(s))
}

static DURATION_WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let unit = "(ns|nano|us|µs|micro|ms|milli|s|sec|second|m|min|minute|h|hr|hour|d|day|w|wk|week)";
    Regex::new(&format!(r"^(\d+\s*{unit}s?\s*)+$")).ok()
});

fn is_go_duration(s: &str) -> bool {
    let s = s.strip_prefix(['-', '+']).unwrap_or(s);
    if s == "0" {
        return true;
    }
    let mut rest = s;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        let Some(unit) =
            ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|u| after.starts_with(**u))
        else {
            return false;
        };
        rest = after.strip_prefix(unit).unwrap_or_default();
    }
    !s.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_good_strings_from_bad_ones() {
        let cases: [(&str, &[&str], &[&str]); 12] = [
            (
                "date-time",
                &["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+02:00"],
                &[
                    "yesterday",
                    "2026-01-02",
                    "2026-13-02T03:04:05Z",
                    "2026-01-02 03:04:05Z",
                    "2026-01-02T03:04:05",
                ],
            ),
            ("date", &["2026-02-28"], &["2026-02-30", "20260228"]),
            ("byte", &["", "aGk="], &["a", "?"]),
            ("email", &["a.b+c@example.com"], &["a", "@x", "a@", "a b@c"]),
            (
                "uuid",
                &["11111111-2222-3333-4444-555555555555"],
                &["1111", "g1111111-2222-3333-4444-555555555555"],
            ),
            ("uuid4", &["11111111-2222-4333-8444-555555555555"], &["11111111-2222-3333-4444-555555555555"]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1", "10.0.0.256"]),
            ("ipv6", &["::1"], &["10.0.0.1", ":::"]),
            ("cidr", &["10.0.0.0/8", "fd00::/48"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            ("duration", &["1h30m", "0", "-1.5s", "3 days"], &["", "1", "h", "1.2.3s"]),
            ("hostname", &["a.example.com"], &["", "-a", "a_b"]),
            ("mac", &["aa:bb:cc:dd:ee:ff"], &["aa:bb:cc", "gg:bb:cc:dd:ee:ff"]),
        ];
        for (name, good, bad) in cases {
            let format = Format::from_name(name).unwrap();
            for s in good {
                assert!(format.accepts(s), "{name}: {s}");
            }
            for s in bad {
                assert!(!format.accepts(s), "{name}: {s}");
            }
        }
    }

    #[test]
    fn formats_nobody_checks_are_not_known() {
        assert_eq!(Format::from_name("double"), None);
        assert_eq!(Format::from_name("whatever"), None);
        assert_eq!(Format::from_name("datetime"), Some(Format::DateTime));
    }
}
