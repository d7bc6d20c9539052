use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A field on the wire.
fn field(number: u64, wire: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | wire);
    if wire == 2 {
        out.extend(varint(payload.len() as u64));
    }
    out.extend(payload);
    out
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn text(number: u64, text: &str) -> Vec<u8> {
    field(number, 2, text.as_bytes())
}

fn number(at: u64, value: u64) -> Vec<u8> {
    field(at, 0, &varint(value))
}

fn message(number: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    field(number, 2, &parts.concat())
}

fn body(api_version: &str, kind: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let types = message(1, &[text(1, api_version), text(2, kind)]);
    let rest = [types, message(2, parts), text(3, ""), text(4, "")].concat();
    [MAGIC, &rest].concat()
}

/// As Go sends it: whatever is no pointer is there, even if it was never set.
fn metadata(name: &str) -> Vec<u8> {
    let unset =
        [text(2, ""), text(3, ""), text(4, ""), text(5, ""), text(6, ""), number(7, 0), message(8, &[])];
    message(1, &[vec![text(1, name)], unset.to_vec()].concat())
}

#[test]
fn a_configmap_as_kubectl_sends_it() {
    let data = [message(2, &[text(1, "k"), text(2, "v")]), message(2, &[text(1, "empty")])].concat();
    let binary = message(3, &[text(1, "b"), field(2, 2, &[0, 1, 255])]);
    let sent = body("v1", "ConfigMap", &[metadata("c"), data, binary]);
    assert_eq!(
        decode(&sent).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
            "data": {"k": "v", "empty": ""}, "binaryData": {"b": "AAH/"}})
    );
}

#[test]
fn a_zero_that_was_meant_is_kept_and_one_that_was_never_set_is_not() {
    let spec = message(2, &[number(1, 0), number(5, 0), message(3, &[metadata(""), message(2, &[])])]);
    let sent = body("apps/v1", "Deployment", &[metadata("d"), spec, message(3, &[number(1, 0)])]);
    let got = decode(&sent).unwrap();
    assert_eq!(got["spec"], json!({"replicas": 0, "template": {"metadata": {}, "spec": {}}}));
    assert_eq!(got["status"], json!({}), "a message that is there is there");
}

#[test]
fn parts_without_a_name_of_their_own_are_fields_of_what_is_around_them() {
    let volume = message(1, &[text(1, "work"), message(2, &[message(2, &[text(1, "Memory")])])]);
    let reference = message(4, &[message(1, &[text(1, "secret")]), text(2, "key"), number(3, 0)]);
    let variable = message(7, &[text(1, "TOKEN"), text(2, ""), message(3, &[reference])]);
    let container = message(2, &[text(1, "main"), variable]);
    let sent = body("v1", "Pod", &[metadata("p"), message(2, &[volume, container])]);
    let got = decode(&sent).unwrap();
    assert_eq!(got["spec"]["volumes"], json!([{"name": "work", "emptyDir": {"medium": "Memory"}}]));
    let reference = json!({"name": "secret", "key": "key", "optional": false});
    assert_eq!(
        got["spec"]["containers"],
        json!([{"name": "main", "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": reference}}]}])
    );
}

#[test]
fn values_that_are_messages_in_protobuf_are_texts_and_numbers_in_json() {
    let port = |parts: &[Vec<u8>]| message(1, &[number(3, 80), message(4, parts)]);
    let ports = [port(&[number(1, 0), number(2, 8080)]), port(&[number(1, 1), text(3, "web")]), port(&[])];
    let sent = body("v1", "Service", &[metadata("s"), message(2, &ports)]);
    assert_eq!(
        decode(&sent).unwrap()["spec"]["ports"],
        json!([{"port": 80, "targetPort": 8080}, {"port": 80, "targetPort": "web"}, {"port": 80}])
    );
    let micro = message(4, &[number(1, 1_700_000_000), number(2, 123_456_789)]);
    let lease = message(2, &[text(1, "me"), number(2, 15), micro]);
    let got = decode(&body("coordination.k8s.io/v1", "Lease", &[metadata("l"), lease])).unwrap();
    assert_eq!(got["spec"]["renewTime"], "2023-11-14T22:13:20.123456Z");
    let extra = message(5, &[text(1, "scopes"), message(2, &[text(1, "a"), text(1, "b")])]);
    let review = message(2, &[text(3, "jane"), text(4, "devs"), extra]);
    let got = decode(&body("authorization.k8s.io/v1", "SubjectAccessReview", &[review])).unwrap();
    assert_eq!(got["spec"], json!({"user": "jane", "groups": ["devs"], "extra": {"scopes": ["a", "b"]}}));
}

#[test]
fn negative_numbers_and_times_are_read() {
    let spec = message(2, &[number(1, u64::MAX)]);
    let meta = message(1, &[text(1, "j"), message(9, &[number(1, 1_700_000_000), number(2, 5)])]);
    let got = decode(&body("batch/v1", "Job", &[meta, spec])).unwrap();
    assert_eq!(got["spec"]["parallelism"], -1);
    assert_eq!(got["metadata"]["deletionTimestamp"], "2023-11-14T22:13:20Z");
}

#[test]
fn a_definition_with_its_schema_is_read() {
    let number_schema = [
        text(5, "integer"),
        field(11, 1, &1.0_f64.to_bits().to_le_bytes()),
        field(9, 1, &2.5_f64.to_bits().to_le_bytes()),
    ];
    let items = message(24, &[message(1, &number_schema)]);
    let any = message(30, &[number(1, 1)]);
    let some = message(30, &[number(1, 0), message(2, &[text(5, "string")])]);
    let default = message(8, &[text(1, "{\"a\":[1]}")]);
    let list = message(29, &[text(1, "list"), message(2, &[text(5, "array"), items])]);
    let open = message(29, &[text(1, "open"), message(2, &[text(5, "object"), any, default])]);
    let map = message(29, &[text(1, "map"), message(2, &[text(5, "object"), some])]);
    let version = message(
        7,
        &[text(1, "v1"), number(2, 1), number(3, 0), message(4, &[message(1, &[list, open, map])])],
    );
    let got = decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &[message(2, &[version])]))
        .unwrap();
    let version = &got["spec"]["versions"][0];
    assert_eq!((&version["served"], &version["storage"]), (&json!(true), &json!(false)));
    assert_eq!(
        version["schema"]["openAPIV3Schema"]["properties"],
        json!({"list": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 2.5}},
            "open": {"type": "object", "additionalProperties": true, "default": {"a": [1]}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}}})
    );
}

#[test]
fn what_is_no_such_body_says_why() {
    let good = body("v1", "ConfigMap", &[metadata("c")]);
    assert_eq!(decode(b"{}"), Err(ProtobufError::NoMagic));
    assert_eq!(decode(&good[4..]), Err(ProtobufError::NoMagic));
    assert_eq!(decode(&good[..good.len() - 1]), Err(ProtobufError::CutOff));
    let unknown = decode(&body("example.com/v1", "Thing", &[]));
    assert!(matches!(unknown, Err(ProtobufError::UnknownKind { .. })), "{unknown:?}");
    let wrong = body("v1", "ConfigMap", &[number(1, 5)]);
    assert_eq!(decode(&wrong), Err(ProtobufError::WrongType("metadata".into())));
    let wrong = body("v1", "ConfigMap", &[message(1, &[field(1, 2, b"\xff")])]);
    assert_eq!(decode(&wrong), Err(ProtobufError::NotUtf8("name".into())));
    let mut schema = text(5, "object");
    for _ in 0..200 {
        schema = message(28, &[schema]);
    }
    let version = message(7, &[message(4, &[message(1, &[schema])])]);
    let deep =
        decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &[message(2, &[version])]));
    assert_eq!(deep, Err(ProtobufError::TooDeep(128)));
}

#[test]
fn halves_of_a_message_are_joined_and_unknown_numbers_skipped() {
    let halves = [message(1, &[text(1, "c")]), number(999, 7), message(1, &[text(3, "ns")])];
    let got = decode(&body("v1", "ConfigMap", &halves)).unwrap();
    assert_eq!(got["metadata"], json!({"name": "c", "namespace": "ns"}));
}

proptest! {
    /// Whatever comes after the magic, there is an answer.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&[MAGIC, &bytes].concat());
    }

    /// And inside a body of a kind: damage at any place, of any message.
    #[test]
    fn a_damaged_body_is_read_or_refused(
        at in 0_usize..400,
        with in any::<u8>(),
        cut in 0_usize..400,
        kind in prop::sample::select(vec![("v1", "Pod"), ("v1", "Service"), ("batch/v1", "Job"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")]),
        parts in proptest::collection::vec((1_u64..45, proptest::collection::vec((1_u64..45, "[a-z]{0,4}"), 0..4)), 0..6),
    ) {
        let parts: Vec<_> = parts.into_iter().map(|(number, inner)| {
            let inner: Vec<_> = inner.into_iter().map(|(number, said)| text(number, &said)).collect();
            message(number, &[message(2, &inner)])
        }).collect();
        let mut sent = body(kind.0, kind.1, &parts);
        if let Some(byte) = sent.get_mut(at) {
            *byte = with;
        }
        sent.truncate(sent.len().saturating_sub(cut / 8));
        let _ = decode(&sent);
    }
}
