module github.com/tenure-project/tenure/store/azurestore

go 1.26.0

require github.com/tenure-project/tenure v0.0.0

replace github.com/tenure-project/tenure => ../..
