//! [`Role`]: a process that can be configured.

use crate::target::Target;
use crate::up::Up;
use crate::{daemon, store};
use clap::{Arg, Args, Command};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Manager,
    Server,
    Gateway,
    Cell,
    Up,
}

impl Role {
    pub const ALL: [Role; 5] = [Role::Manager, Role::Server, Role::Gateway, Role::Cell, Role::Up];

    /// Of its section in a file, and in its variables.
    pub fn name(self) -> &'static str {
        match self {
            Role::Manager => "manager",
            Role::Server => "server",
            Role::Gateway => "gateway",
            Role::Cell => "cell",
            Role::Up => "up",
        }
    }

    pub fn named(name: &str) -> Option<Role> {
        let name = name.strip_prefix("kumo-").unwrap_or(name);
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    pub fn command_line(self) -> Command {
        match self {
            Role::Manager => store::manager::command_line(),
            Role::Server => store::server::command_line(),
            Role::Gateway => store::gateway::command_line(),
            Role::Cell => daemon::command_line(),
            // With what all commands of kumo share, which may stand behind its name too.
            Role::Up => Target::augment_args(super::with_file(Up::augment_args(Command::new("up")))),
        }
    }

    /// The options that can be configured, by their long names.
    pub fn options(self, command: &Command) -> Vec<(&str, &Arg)> {
        let own = command.get_arguments().filter(|arg| !arg.is_global_set() && !arg.is_hide_set());
        let named = own.filter_map(|arg| Some((arg.get_long()?, arg)));
        named.filter(|(name, _)| !matches!(*name, super::FILE | "help" | "version")).collect()
    }

    /// The variable of an option.
    pub fn variable(self, key: &str) -> String {
        format!("{}{}", self.variables(), key.to_uppercase().replace('-', "_"))
    }

    /// How its variables begin.
    pub fn variables(self) -> String {
        format!("KUMO_{}_", self.name().to_uppercase())
    }
}
