//! What layers say is what lies there, and nothing lies anywhere else.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;
use tar::{EntryType, Header};

use super::*;
use crate::oci::Platform;
use crate::oci::testing::{Builder, LAYER_TYPE};

/// An entry of a layer, as a test writes it.
#[derive(Clone, Copy)]
enum Put<'a> {
    File(&'a str, &'a str),
    Mode(&'a str, u32),
    Dir(&'a str),
    Link(&'a str, &'a str),
    Hard(&'a str, &'a str),
    Of(EntryType, &'a str),
}
use Put::{Dir, File, Hard, Link, Mode, Of};

fn layer(entries: &[Put<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for put in entries {
        let (kind, name, text, link, mode) = match *put {
            File(name, text) => (EntryType::Regular, name, text, None, 0o644),
            Mode(name, mode) => (EntryType::Regular, name, "", None, mode),
            Dir(name) => (EntryType::Directory, name, "", None, 0o755),
            Link(name, to) => (EntryType::Symlink, name, "", Some(to), 0o777),
            Hard(name, to) => (EntryType::Link, name, "", Some(to), 0o644),
            Of(kind, name) => (kind, name, "", None, 0o644),
        };
        let mut header = Header::new_gnu();
        // Written by hand: the builder refuses what a hostile layer would hold.
        let field = &mut header.as_gnu_mut().unwrap();
        field.name[..name.len()].copy_from_slice(name.as_bytes());
        link.inspect(|to| field.linkname[..to.len()].copy_from_slice(to.as_bytes()));
        header.set_entry_type(kind);
        header.set_size(text.len() as u64);
        header.set_mode(mode);
        header.set_mtime(1_000_000);
        header.set_cksum();
        builder.append(&header, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Unpacks an image of layers under a home that holds nothing else.
fn unpacked(home: &Path, layers: &[&[Put<'_>]]) -> Result<PathBuf, Error> {
    let tars: Vec<Vec<u8>> = layers.iter().map(|entries| layer(entries)).collect();
    let ids: Vec<Digest> = tars.iter().map(|tar| Digest::of(tar)).collect();
    image(home, &tars, &ids)
}

fn image(home: &Path, tars: &[Vec<u8>], ids: &[Digest]) -> Result<PathBuf, Error> {
    let mut builder = Builder::new(home.join("layout")).unwrap();
    let layers: Vec<_> = tars.iter().map(|tar| builder.blob(LAYER_TYPE, tar).unwrap()).collect();
    let manifest = builder.image(&json!({"rootfs": {"diff_ids": ids}}), &layers).unwrap();
    builder.name(manifest, "x:y");
    let layout = Layout::open(builder.finish().unwrap()).unwrap();
    let image = layout.image(&layout.entries()[0], &Platform::here()).unwrap();
    let config = layout.config(&image).unwrap();
    Cache::open(home.join("cache")).unwrap().get(&layout, &image, &config)
}

/// All paths below a directory but the kernel's, sorted.
fn paths(root: &Path) -> Vec<String> {
    let mut left = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            }
            found.push(entry.path().strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
    found.retain(|path| !KERNEL_DIRECTORIES.contains(&path.as_str()));
    found.sort();
    found
}

#[test]
fn later_layers_replace_and_remove() {
    let home = tempfile::tempdir().unwrap();
    let root = unpacked(
        home.path(),
        &[
            &[
                Dir("a/"),
                File("a/one", "1"),
                File("a/two", "2"),
                File("b", "b"),
                File("d/deep/f", "f"),
                File("t", "t"),
            ],
            &[
                File("a/.wh.one", ""),
                File("a/two", "new"),
                Dir("b/"),
                File("b/c", "c"),
                File("t/u", "u"),
                File(".wh.t", ""),
            ],
            // Opaque, though it stands after what this layer itself brings.
            &[
                File("d/deep/own", "own"),
                File("d/.wh..wh..opq", ""),
                File(".wh..wh.plnk", ""),
                File(".wh.absent", ""),
            ],
        ],
    );
    // A file does not become a directory by having something put below it.
    assert!(matches!(root, Err(Error::Write { ref path, .. }) if path == Path::new("t/u")), "{root:?}");

    let home = tempfile::tempdir().unwrap();
    let root = unpacked(
        home.path(),
        &[
            &[Dir("a/"), File("a/one", "1"), File("a/two", "2"), File("b", "b"), File("d/deep/f", "f")],
            &[File("a/.wh.one", ""), File("a/two", "new"), Dir("b/"), File("b/c", "c")],
            &[
                File("d/deep/own", "own"),
                File("d/.wh..wh..opq", ""),
                File(".wh..wh.plnk", ""),
                File(".wh.absent", ""),
            ],
        ],
    )
    .unwrap();
    assert_eq!(paths(&root), ["a", "a/two", "b", "b/c", "d", "d/deep", "d/deep/own"]);
    assert_eq!(fs::read_to_string(root.join("a/two")).unwrap(), "new");
    assert!(KERNEL_DIRECTORIES.iter().all(|name| root.join(name).is_dir()));
}

#[test]
fn links_are_kept_as_written_and_followed_within_the_image_only() {
    let home = tempfile::tempdir().unwrap();
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let to = outside.to_str().unwrap();
    let root = unpacked(
        home.path(),
        &[
            &[
                Dir("usr/lib"),
                Link("lib", "usr/lib"),
                Link("abs", "/usr"),
                Link("up", "../../../.."),
                Link("out", to),
            ],
            &[File("lib/x", "1"), File("abs/y", "2"), File("up/z", "3"), Hard("h", "lib/x")],
        ],
    )
    .unwrap();
    for (path, text) in [("usr/lib/x", "1"), ("usr/y", "2"), ("z", "3"), ("h", "1")] {
        assert_eq!(fs::read_to_string(root.join(path)).unwrap(), text, "{path}");
    }
    assert_eq!(fs::read_link(root.join("out")).unwrap(), outside);
    assert_eq!(
        fs::metadata(root.join("h")).unwrap().ino(),
        fs::metadata(root.join("usr/lib/x")).unwrap().ino()
    );
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

#[test]
fn what_reaches_out_or_is_no_file_is_refused() {
    let table: &[(&[Put<'_>], &str)] = &[
        (&[File("../x", "")], "absolute or has `..`"),
        (&[File("a/../../x", "")], "absolute or has `..`"),
        (&[File("/x", "")], "absolute or has `..`"),
        (&[Hard("x", "../../cache")], "hard link to ../../cache"),
        (&[Hard("x", "/etc/passwd")], "hard link to /etc/passwd"),
        (&[Hard("x", "absent")], "not in the image"),
        (&[Dir("d"), Hard("x", "d")], "a directory"),
        (&[Link("up", "../.."), Hard("x", "up/layout/index.json")], "not in the image"),
        (&[Of(EntryType::Char, "dev/null")], "a character device"),
        (&[Of(EntryType::Block, "disk")], "a block device"),
        (&[Of(EntryType::Fifo, "pipe")], "a named pipe"),
        (&[Link("proc", "/etc")], "/proc is no directory"),
    ];
    for (entries, why) in table {
        let home = tempfile::tempdir().unwrap();
        let error = unpacked(home.path(), &[entries]).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(fs::read_dir(home.path().join("cache")).unwrap().count(), 0, "{why}: something is left");
    }
}

#[test]
fn nobody_becomes_another_by_running_a_file() {
    let home = tempfile::tempdir().unwrap();
    let root = unpacked(home.path(), &[&[Mode("su", 0o6755), Mode("secret", 0), Dir("d")]]).unwrap();
    let mode = |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("su"), mode("secret"), mode("d")), (0o755, 0o400, 0o755));
    assert_eq!(fs::metadata(root.join("su")).unwrap().mtime(), 1_000_000);
}

#[test]
fn a_layer_that_unpacks_to_something_else_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let tar = layer(&[File("f", "1")]);
    let other = Digest::of(b"other");
    let error = image(home.path(), std::slice::from_ref(&tar), std::slice::from_ref(&other)).unwrap_err();
    assert!(matches!(error, Error::OtherLayer { said, .. } if said == other));
    let error = image(home.path(), &[tar], &[]).unwrap_err();
    assert!(matches!(error, Error::OtherLayers { said: 0, found: 1 }));
}

#[test]
fn an_image_is_unpacked_once_and_a_crash_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let root = unpacked(home.path(), &[&[File("f", "1")]]).unwrap();
    fs::write(root.join("mark"), "").unwrap();
    let draft = home.path().join("cache/.new-sha256-0");
    fs::create_dir(&draft).unwrap();
    let again = unpacked(home.path(), &[&[File("f", "1")]]).unwrap();
    assert!(again.join("mark").exists() && !draft.exists());
}

#[test]
fn limits_stop_what_is_too_much() {
    let home = tempfile::tempdir().unwrap();
    let root = beneath::open(home.path()).unwrap();
    let tar = layer(&[File("a", "1"), File("b", "2")]);
    let apply = |bytes, entries| {
        let mut builder = Builder::new(home.path().join("layout")).unwrap();
        let layer = builder.blob(LAYER_TYPE, &tar).unwrap();
        let manifest = builder.image(&json!({}), std::slice::from_ref(&layer)).unwrap();
        builder.name(manifest, "x:y");
        let layout = Layout::open(builder.finish().unwrap()).unwrap();
        let mut budget = Budget { bytes, entries };
        let applied = Layer::new(&root, layer.digest.clone(), &mut budget);
        applied.apply(layout.blob(&layer).unwrap(), &layer.digest).map(drop).map_err(|e| e.to_string())
    };
    let length = tar.len() as u64;
    assert_eq!(apply(length, 2), Ok(()));
    assert!(apply(length - 1, 2).unwrap_err().contains("more than an image may"));
    assert!(apply(length, 1).unwrap_err().contains("more entries"));
}

#[test]
fn a_copy_is_what_it_was_copied_from() {
    let home = tempfile::tempdir().unwrap();
    let root =
        unpacked(home.path(), &[&[Dir("d"), File("d/f", "1"), Link("l", "/d"), Mode("x", 0o755)]]).unwrap();
    let to = home.path().join("copy");
    copy(&root, &to).unwrap();
    assert_eq!(paths(&to), paths(&root));
    assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("/d"));
    assert_eq!(fs::metadata(to.join("x")).unwrap().permissions().mode() & 0o777, 0o755);
}
