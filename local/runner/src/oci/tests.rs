//! What a layout says is what is read, and nothing else is.

use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use super::testing::{Builder, LAYER_TYPE};
use super::*;

/// A tar of files.
pub(crate) fn tarred(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A layout with one image of one layer.
fn layout(home: &Path, name: &str, layer: &[u8], config: &Value) -> Layout {
    let mut builder = Builder::new(home).unwrap();
    let layer = builder.blob(LAYER_TYPE, layer).unwrap();
    let manifest = builder.image(config, &[layer]).unwrap();
    builder.name(manifest, name);
    Layout::open(builder.finish().unwrap()).unwrap()
}

fn image(layout: &Layout, name: &str) -> Image {
    let found = layout.find(&name.parse().unwrap()).unwrap_or_else(|| panic!("{name} is not there"));
    layout.image(found, &Platform::here()).unwrap()
}

fn unpacked(layout: &Layout, image: &Image) -> Vec<(String, String)> {
    let blob = layout.blob(&image.manifest.layers[0]).unwrap();
    let mut archive = ::tar::Archive::new(decompressed(blob).unwrap());
    let entries = members(archive.entries().unwrap()).map(|member| {
        let mut member = member.unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut member, &mut text).unwrap();
        (member.path.to_string_lossy().into_owned(), text)
    });
    entries.collect()
}

#[test]
fn a_reference_leads_to_a_config_and_layers() {
    let home = tempfile::tempdir().unwrap();
    let config =
        json!({"config": {"Env": ["A=1"], "Entrypoint": ["/x"], "Cmd": null}, "rootfs": {"diff_ids": null}});
    let layout = layout(home.path(), "example.invalid/a:v1", &tarred(&[("f", "text")]), &config);
    assert!(layout.find(&"example.invalid/a:v2".parse().unwrap()).is_none());
    let found = image(&layout, "example.invalid/a:v1");
    let config = layout.config(&found).unwrap().config;
    assert_eq!((config.env, config.entrypoint), (vec!["A=1".to_owned()], vec!["/x".to_owned()]));
    assert_eq!(unpacked(&layout, &found), [("f".to_owned(), "text".to_owned())]);
    let pinned = format!("anything@{}", found.digest);
    assert_eq!(image(&layout, &pinned).digest, found.digest);
}

#[test]
fn a_tag_alone_belongs_to_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let layout = layout(&home.path().join("app"), "v1", &tarred(&[]), &json!({}));
    assert_eq!(layout.names()[0].to_string(), "docker.io/library/app:v1");
    image(&layout, "app:v1");
}

#[test]
fn layers_are_read_however_they_are_compressed() {
    let plain = tarred(&[("a", "1"), ("deep/b", &"long ".repeat(50_000))]);
    let frames: Vec<u8> = {
        let (first, second) = plain.split_at(700);
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        [&skipped[..], &zstd(first), &skipped[..], &zstd(second)].concat()
    };
    let members: Vec<u8> = {
        let (first, second) = plain.split_at(700);
        [gzipped(first), gzipped(second)].concat()
    };
    for layer in [plain.clone(), gzipped(&plain), members, zstd(&plain), frames] {
        let home = tempfile::tempdir().unwrap();
        let layout = layout(home.path(), "x:y", &layer, &json!({}));
        let files = unpacked(&layout, &image(&layout, "x:y"));
        assert_eq!((files.len(), files[1].1.len()), (2, 250_000));
    }
}

#[test]
fn what_is_not_what_its_digest_says_is_refused() {
    for harm in [b"other".as_slice(), b"", b"longer than it was before, by far"] {
        let home = tempfile::tempdir().unwrap();
        let layout = layout(home.path(), "x:y", b"as it was", &json!({}));
        let found = image(&layout, "x:y");
        let layer = &found.manifest.layers[0];
        assert_eq!(layout.read(layer, 100).unwrap(), b"as it was");
        fs::write(home.path().join("blobs/sha256").join(layer.digest.hex()), harm).unwrap();
        let error = layout.read(layer, 100).unwrap_err();
        assert!(matches!(&error, Error::Blob { digest, .. } if *digest == layer.digest), "{error}");
        // The manifest is a blob like any other.
        let manifest = home.path().join("blobs/sha256").join(found.digest.hex());
        fs::write(manifest, harm).unwrap();
        assert!(layout.image(layout.find(&"x:y".parse().unwrap()).unwrap(), &Platform::here()).is_err());
    }
    let home = tempfile::tempdir().unwrap();
    let layout = layout(home.path(), "x:y", b"as it was", &json!({}));
    let error = layout.read(&image(&layout, "x:y").manifest.layers[0], 3).unwrap_err().to_string();
    assert!(error.contains("at most 3"), "{error}");
}

#[test]
fn of_several_platforms_this_machines_is_chosen() {
    let home = tempfile::tempdir().unwrap();
    let mut builder = Builder::new(home.path()).unwrap();
    let on = |os: &str, architecture: &str, config: Value| {
        let mut manifest = builder.image(&config, &[]).unwrap();
        manifest.platform = Some(Platform { os: os.to_owned(), architecture: architecture.to_owned() });
        manifest
    };
    let manifests = [
        on("unknown", "unknown", json!({})),
        on("linux", "other", json!({"config": {"User": "other"}})),
        on("linux", &Platform::here().architecture, json!({"config": {"User": "here"}})),
    ];
    let many = builder.blob(INDEX_TYPES[0], json!({"manifests": manifests}).to_string().as_bytes()).unwrap();
    let few = json!({"manifests": manifests[..2]}).to_string();
    let few = builder.blob(INDEX_TYPES[0], few.as_bytes()).unwrap();
    builder.name(many, "many:v1");
    builder.name(few.clone(), "few:v1");
    let layout = Layout::open(builder.finish().unwrap()).unwrap();
    assert_eq!(layout.config(&image(&layout, "many:v1")).unwrap().config.user, "here");
    let error = layout.image(&few, &Platform::here()).unwrap_err().to_string();
    assert!(error.contains("linux/other"), "{error}");
}

#[test]
fn an_index_that_leads_to_itself_ends() {
    let home = tempfile::tempdir().unwrap();
    let builder = Builder::new(home.path()).unwrap();
    // No blob can hold its own digest; a chain longer than the limit is as near as one gets.
    let mut at = builder.image(&json!({}), &[]).unwrap();
    for _ in 0..=MAX_INDEX_DEPTH {
        at = builder.blob(INDEX_TYPES[0], json!({"manifests": [at]}).to_string().as_bytes()).unwrap();
    }
    let layout = Layout::open(builder.finish().unwrap()).unwrap();
    assert!(layout.image(&at, &Platform::here()).is_err());
}

#[test]
fn an_archive_is_read_like_its_directory() {
    let home = tempfile::tempdir().unwrap();
    layout(&home.path().join("dir"), "example.invalid/a:v1", &tarred(&[("f", "text")]), &json!({}));
    let mut builder = ::tar::Builder::new(Vec::new());
    builder.append_dir_all(".", home.path().join("dir")).unwrap();
    let bytes = builder.into_inner().unwrap();
    let path = home.path().join("saved.tar");
    fs::write(&path, &bytes).unwrap();
    let layout = Layout::open(&path).unwrap();
    let found = image(&layout, "example.invalid/a:v1");
    assert_eq!(unpacked(&layout, &found), [("f".to_owned(), "text".to_owned())]);
    fs::write(&path, gzipped(&bytes)).unwrap();
    assert!(Layout::open(&path).unwrap_err().to_string().contains("decompress"));
}

#[test]
fn what_older_docker_saved_is_checked_by_its_diff_ids() {
    let layer = tarred(&[("f", "text")]);
    let config = json!({"config": {"Cmd": ["/x"]}, "rootfs": {"diff_ids": [Digest::of(&layer)]}}).to_string();
    let manifest = json!([{"Config": "c.json", "RepoTags": ["example.invalid/a:v1", "a:v2"], "Layers": ["l/layer.tar"]}]);
    let save = |layer: &[u8]| {
        let home = tempfile::tempdir().unwrap();
        let mut builder = ::tar::Builder::new(Vec::new());
        let manifest = manifest.to_string();
        let files =
            [("manifest.json", manifest.as_bytes()), ("c.json", config.as_bytes()), ("o/layer.tar", layer)];
        for (name, bytes) in files {
            let mut header = ::tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, bytes).unwrap();
        }
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(::tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, "l/layer.tar", "../o/layer.tar").unwrap();
        let path = home.path().join("saved.tar");
        fs::write(&path, builder.into_inner().unwrap()).unwrap();
        let layout = Layout::open(path).unwrap();
        (home, layout)
    };
    let (_home, layout) = save(&layer);
    for name in ["example.invalid/a:v1", "a:v2"] {
        let found = image(&layout, name);
        assert_eq!(layout.config(&found).unwrap().config.cmd, ["/x"]);
        assert_eq!(unpacked(&layout, &found), [("f".to_owned(), "text".to_owned())]);
    }
    let (_home, layout) = save(&tarred(&[("f", "harm")]));
    let found = image(&layout, "a:v2");
    assert!(layout.read(&found.manifest.layers[0], 1 << 20).unwrap_err().to_string().contains("digest"));
}

#[test]
fn what_is_no_layout_says_so() {
    let home = tempfile::tempdir().unwrap();
    assert!(Layout::open(home.path()).unwrap_err().to_string().contains("index.json"));
    fs::write(home.path().join("index.json"), "{").unwrap();
    assert!(matches!(Layout::open(home.path()), Err(Error::Malformed { .. })));
    fs::write(home.path().join("index.json"), vec![b' '; 5 << 20]).unwrap();
    assert!(Layout::open(home.path()).unwrap_err().to_string().contains("longer"));
    assert!(Layout::open(home.path().join("absent")).is_err());
    let index = json!({"manifests": [{"digest": "sha256:../../etc", "size": 1}]}).to_string();
    fs::write(home.path().join("index.json"), index).unwrap();
    assert!(Layout::open(home.path()).unwrap_err().to_string().contains("no digest"));
}

#[test]
fn names_longer_than_a_header_come_through_and_endless_ones_do_not() {
    let long = format!("{}/f", "d".repeat(200));
    let home = tempfile::tempdir().unwrap();
    let layout = layout(home.path(), "x:y", &tarred(&[(&long, "text")]), &json!({}));
    assert_eq!(unpacked(&layout, &image(&layout, "x:y")), [(long, "text".to_owned())]);

    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(::tar::EntryType::GNULongName);
    header.set_size(1 << 30);
    header.set_cksum();
    let mut archive = ::tar::Archive::new(header.as_bytes().as_slice());
    let refused = members(archive.entries().unwrap()).next().unwrap().unwrap_err();
    assert!(refused.to_string().contains("1 MiB"), "{refused}");
}
