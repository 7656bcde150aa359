require "rails"
require "active_record/railtie"

class Project < Rails::Application
  config.root = File.dirname(__dir__)
  config.eager_load = false
  # schema.rb would know neither the sequence nor next_id().
  config.active_record.schema_format = :sql
end
