//! Where the database lives: in `.posthorn/`, or, as root, where its user can walk.
//!
//! `initdb` refuses root, so the cluster runs as another user, and that user cannot walk through a private folder
//! of root's. Then cluster and binaries go to `/var/lib/posthorn-dev/{hash of the checkout's path}`, and
//! `.posthorn/where` says so.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::{capture, is_root};
use crate::workspace::{Workspace, make_folder};

/// The longest socket path that every system takes, in bytes, with PostgreSQL's own file name.
const LONGEST_SOCKET_FOLDER: usize = 80;

/// The folder above those of checkouts whose caller is root.
const FOR_ROOT: &str = "/var/lib/posthorn-dev";

/// Folders of one checkout.
pub(crate) struct Place {
    base: PathBuf,
    user: Option<User>,
    hash: String,
}

/// The account that a cluster runs as, where that is not the caller's.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Place {
    pub(crate) fn of(workspace: &Workspace) -> Result<Self> {
        let private = workspace.private()?;
        let hash = workspace.hash();
        if !is_root() {
            return Ok(Self {
                base: private,
                user: None,
                hash,
            });
        }
        // `.posthorn/` is 0700 and root's own, so no other account ever walks there.
        let base = Self::for_root(workspace);
        make_folder(Path::new(FOR_ROOT), 0o755)?;
        make_folder(&base, 0o711)?;
        let note = format!("{}\n", base.display());
        std::fs::write(private.join("where"), note).context("writing .posthorn/where")?;
        Ok(Self {
            base,
            user: Some(database_user()?),
            hash,
        })
    }

    /// Where root's folder for this checkout is, or would be.
    pub(crate) fn for_root(workspace: &Workspace) -> PathBuf {
        Path::new(FOR_ROOT).join(workspace.hash())
    }

    /// The folder outside the checkout that `.posthorn/where` names: root's, now or when the checkout was last used.
    /// A note that names anything but one of our own folders is not believed.
    pub(crate) fn noted(workspace: &Workspace) -> Option<PathBuf> {
        let text = std::fs::read_to_string(workspace.join(".posthorn/where")).ok()?;
        named_in(&text)
    }

    /// The folder that holds everything of the database.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// Whom a cluster runs as; none: as the caller.
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Binaries that the database's user must be able to run.
    pub(crate) fn tools(&self) -> Result<PathBuf> {
        let folder = self.base.join("tools");
        make_folder(&folder, if self.user.is_some() { 0o755 } else { 0o700 })?;
        Ok(folder)
    }

    /// A private folder whose path is short enough for a socket.
    pub(crate) fn socket_folder(&self, name: &str) -> Result<PathBuf> {
        let usual = self.base.join(name);
        if usual.as_os_str().len() <= LONGEST_SOCKET_FOLDER {
            make_owned(&usual, self.user.as_ref())?;
            return Ok(usual);
        }
        let short = self.hash.get(..8).unwrap_or(&self.hash);
        let short = PathBuf::from(format!(
            "/tmp/posthorn-{short}-{}-{name}",
            std::process::id()
        ));
        // Never one that is there already: it may be somebody else's, or a link.
        DirBuilder::new()
            .mode(0o700)
            .create(&short)
            .with_context(|| format!("making {}", short.display()))?;
        Ok(short)
    }
}

fn named_in(note: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(note.trim());
    let name = folder.strip_prefix(FOR_ROOT).ok()?.to_str()?;
    (name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(folder)
}

/// Makes a folder that only its owner walks, and that a cluster's user owns.
pub(crate) fn make_owned(folder: &Path, user: Option<&User>) -> Result<()> {
    make_folder(folder, 0o700)?;
    if let Some(user) = user {
        std::os::unix::fs::chown(folder, Some(user.uid), Some(user.gid))
            .with_context(|| format!("giving {} to {}", folder.display(), user.name))?;
    }
    Ok(())
}

/// `postgres` where the distribution made it, else a system user `posthorn`, made here.
fn database_user() -> Result<User> {
    if let Some(user) = account("postgres").or_else(|| account("posthorn")) {
        return Ok(user);
    }
    let made = [
        "--system",
        "--user-group",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        "posthorn",
    ];
    capture(Command::new("useradd").args(made)).context("making a system user for the database")?;
    account("posthorn").context("the system user `posthorn` is not in /etc/passwd")
}

fn account(name: &str) -> Option<User> {
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = accounts
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User {
        name: name.to_owned(),
        uid,
        gid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_our_own_is_believed_to_be_ours() {
        let ours = "/var/lib/posthorn-dev/0123456789abcdef";
        assert_eq!(named_in(&format!("{ours}\n")), Some(PathBuf::from(ours)));
        for note in [
            "",
            "/",
            "/var/lib/posthorn-dev",
            "/var/lib/posthorn-dev/",
            "/var/lib/posthorn-dev/..",
            "/var/lib/posthorn-dev/0123456789abcdef/..",
            "/var/lib/posthorn-dev/../../../home/dev0",
            "/var/lib/postgresql/0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert_eq!(named_in(note), None, "{note}");
        }
    }
}
