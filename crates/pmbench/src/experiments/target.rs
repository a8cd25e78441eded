//! A target: something with a directory in which experiments work, and how to make, mount and take
//! it down.

use super::needs::Needs;
use super::template::{Values, fill};
use anyhow::Context;
use serde::Deserialize;
use std::path::Path;

/// A target, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// The target in a few words. Values stand in braces.
    pub title: String,
    /// PMFS, so that the others are its peers.
    #[serde(default)]
    pub ours: bool,
    /// A limit that no target can pass: no peer, but shown beside.
    #[serde(default)]
    pub limit: bool,
    /// The index of its colour and mark, if its place among the targets does not tell it.
    #[serde(default)]
    pub style: Option<usize>,
    /// The things that have to be there.
    #[serde(default)]
    pub needs: Needs,
    /// The values that its steps name; experiments may give others.
    #[serde(default)]
    pub values: Values,
    /// Shell commands, once: `{place}` is an empty directory on a tmpfs with pages of 2 MiB,
    /// `{size}` the bytes wanted.
    #[serde(default)]
    pub make: Vec<String>,
    /// Steps that mount it once it is made.
    #[serde(default)]
    pub mount: Vec<String>,
    /// Steps that unmount it before its place goes.
    #[serde(default)]
    pub unmount: Vec<String>,
    /// The directory in which experiments work.
    pub dir: String,
    /// Stands before a command that works there.
    #[serde(default)]
    pub prefix: String,
    /// The account of where the time goes when it loses, unless an experiment gives one.
    #[serde(default)]
    pub why: String,
}

impl Target {
    /// From the text of its file.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Target> {
        let parsed: Result<Target, _> = toml::from_str(text);
        let mut target = parsed.with_context(|| format!("the target {name}"))?;
        target.name = name.to_owned();
        Ok(target)
    }

    /// Any directory.
    pub fn of_directory(dir: &Path) -> Target {
        let dir = dir.display();
        Target {
            name: format!("dir:{dir}"),
            title: format!("{dir}"),
            ours: false,
            limit: false,
            style: None,
            needs: Needs::default(),
            values: Values::new(),
            make: Vec::new(),
            mount: Vec::new(),
            unmount: vec!["rm -rf {dir}".into()],
            dir: format!("{dir}/pmbench-{}", std::process::id()),
            prefix: String::new(),
            why: String::new(),
        }
    }

    /// Returns the target's title.
    pub fn titled(&self, values: &Values) -> String {
        fill(&self.title, values).unwrap_or_else(|_| self.title.clone())
    }
}
