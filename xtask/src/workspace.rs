//! Where things are: the checkout, its target folder, its `.posthorn/`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The checkout that this program was started in.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// By cargo's word at run time (a target folder may be shared by two checkouts), else by walking up.
    pub(crate) fn find() -> Result<Self> {
        let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(manifest) => PathBuf::from(manifest),
            None => std::env::current_dir().context("reading the current folder")?,
        };
        let root = start
            .ancestors()
            .find(|folder| folder.join("Cargo.lock").is_file() && folder.join("xtask").is_dir())
            .with_context(|| format!("{} is not inside a checkout of Posthorn", start.display()))?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// `target/`, or what `CARGO_TARGET_DIR` says.
    pub(crate) fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// A program that cargo built: `name` of `profile` ("debug", "quick", "release").
    pub(crate) fn program(&self, profile: &str, name: &str) -> PathBuf {
        self.target().join(profile).join(name)
    }

    /// `.posthorn/`, made and private (0700) whatever the umask.
    pub(crate) fn private(&self) -> Result<PathBuf> {
        let folder = self.root.join(".posthorn");
        make_folder(&folder, 0o700)?;
        Ok(folder)
    }

    /// `.posthorn/logs/`.
    pub(crate) fn logs(&self) -> Result<PathBuf> {
        let folder = self.private()?.join("logs");
        make_folder(&folder, 0o700)?;
        Ok(folder)
    }

    /// A short name for this checkout, for folders outside it.
    pub(crate) fn hash(&self) -> String {
        // FNV-1a, 64 bits: stable between builds, unlike std's hasher; nothing secret hangs on it.
        let path = self.root.as_os_str().as_encoded_bytes();
        let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// Makes a folder and those above it, and gives this one its mode.
pub(crate) fn make_folder(folder: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", folder.display()))
}

/// Writes a file that only its owner reads (0600), whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("new");
    fs::write(&draft, "").with_context(|| format!("writing {}", draft.display()))?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))?;
    fs::write(&draft, text).with_context(|| format!("writing {}", draft.display()))?;
    fs::rename(&draft, path).with_context(|| format!("writing {}", path.display()))
}
